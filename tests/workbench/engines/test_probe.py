"""Which engine answers, which model it serves, and its version."""

import dataclasses

import pytest

from decoders import InputError
from tests.workbench.engines.served import a_json, a_stream, chunk, served, vllm
from workbench.engines.addresses import Engine
from workbench.engines.client import connect, version
from workbench.engines.record import Query


def completion(call):
    if call.body["stream"]:
        return a_stream([chunk(" a", [1]), chunk(" b", [2], finish_reason="length")])
    return a_json(chunk(" a", finish_reason="length"))


def models(*listed, **others):
    """A server with this list of models."""

    def answers(call):
        if call.path == "/v1/models":
            return a_json({"data": list(listed)})
        if call.body is not None:
            return completion(call)
        return a_json(others[call.path.strip("/")])

    return answers


def test_a_plain_vllm_says_what_it_is():
    with served(vllm(completion)) as server:
        client = connect(server.engine())
        assert (client.dialect.kind, client.model, version(client)) == ("vllm", "stories", "0.32.0")


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        (models({"id": "m", "owned_by": "sglang"}), "sglang"),
        (models({"id": "m", "owned_by": "llamacpp"}), "llama.cpp"),
        (models({"id": "m"}, **{"openapi.json": {"paths": {"/load_model": {}}}}), "transformers"),
        (models({"id": "m"}, **{"openapi.json": {"paths": {"/other": {}}}}), "other"),
        (models({"id": "m"}, **{"openapi.json": [1]}), "other"),
        (models({"id": "m"}), "other"),
    ],
)
def test_the_kind_of_a_server(answers, kind):
    with served(answers) as server:
        assert connect(server.engine()).dialect.kind == kind


def test_a_key_that_comes_back_as_a_name_or_a_version_is_not_shown():
    """The canary printed it as the model's name, and wrote it into its report."""
    key = "sk-secret-1"

    def answers(call):
        if call.path == "/version":
            return a_json({"version": f"1 {key}"})
        if call.body is not None:
            return a_json({**chunk(" a", finish_reason="length"), "model": f"org/{key}"})
        return models({"id": f"org/{key}", "owned_by": "vllm"})(call)

    with served(answers) as server:
        client = connect(server.engine(key="MINE", model=f"org/{key}"), environ={"MINE": key})
        client.ask(Query("x", 1))
        assert server.calls[-1].body["model"] == f"org/{key}"  # as the server calls it
        assert (client.shown_model, version(client)) == ("org/[key]", "1 [key]")


def test_an_address_may_have_a_path_of_its_own():
    def answers(call):
        return vllm(completion)(dataclasses.replace(call, path=call.path.removeprefix("/deep")))

    with served(answers) as server:
        connect(Engine("x", f"{server.url}/deep")).ask(Query((1,), 4))
        assert [call.path for call in server.calls] == ["/deep/v1/models", "/deep/v1/completions"]


def test_the_entry_may_say_the_kind():
    with served(models({"id": "m"})) as server:
        assert connect(server.engine(kind="vllm")).dialect.kind == "vllm"
        with pytest.raises(InputError, match=r"no known kind 'vlm': did you mean 'vllm'"):
            connect(server.engine(kind="vlm"))


def test_another_model_than_said_is_one_sentence():
    with served(models({"id": "a"}, {"id": "b"})) as server:
        assert connect(server.engine()).model == "a"
        assert connect(server.engine(model="b")).model == "b"
        with pytest.raises(InputError, match="serves 'a', 'b', not 'c'; correct `model`"):
            connect(server.engine(model="c"))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"data": 5}, "lists no models: The answer has another shape"),
        ([], "lists no models"),
        ({"data": [{"id": 5}]}, "data.0.id: input should be a valid string"),
    ],
)
def test_a_list_of_models_that_is_none_is_one_sentence(answer, says):
    with served(lambda call: a_json(answer)) as server, pytest.raises(InputError) as error:
        connect(server.engine())
    assert says in str(error.value)
    assert str(error.value).startswith("Engine fake ")
