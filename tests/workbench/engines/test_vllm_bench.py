"""Load of `vllm bench serve`: how it is called, and how its recorded answer is read."""

import json
import os
import re
import sys
import time
from pathlib import Path

import pytest

from decoders import InputError
from tests.workbench.engines.served import served, vllm
from workbench.engines.addresses import Engine
from workbench.engines.client import Client
from workbench.engines.dialects.table import DIALECTS
from workbench.engines.generators import VARIABLE, generator
from workbench.engines.load import Own, Stopped
from workbench.engines.probe import connect
from workbench.engines.record import Query, Speculation
from workbench.engines.vllm_bench import VllmBench
from workbench.engines.wire import Wire

# Of vLLM 0.32.0 with the embedded pair, 8 prompts, 4 at once, 3 draft tokens, greedy.
RECORDED = Path(__file__).parent / "load_recorded" / "vllm-bench.json"
PROGRAM = """#!{python}
import json, os, sys
folder = {folder!r}
if sys.argv[1:] == ["--version"]:
    print("vLLM\\n0.32.0")
    sys.exit()
json.dump([sys.argv[1:], dict(os.environ)], open(folder + "/called.json", "w"))
options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
prompts = [json.loads(line)["prompt"] for line in open(options["--dataset-path"])]
json.dump(prompts, open(folder + "/prompts.json", "w"))
if {status}:
    sys.exit("ImportError: Please install vllm[bench]")
if os.path.exists(folder + "/result.json"):
    text = open(folder + "/result.json").read()
    open(options["--result-dir"] + "/" + options["--result-filename"], "w").write(text)
"""
QUERIES = [Query(f"prompt “{i}”", 32, 0.5, seed=3) for i in range(8)]


def recorded(**changed) -> str:
    return json.dumps({**json.loads(RECORDED.read_text(encoding="utf-8")), **changed})


@pytest.fixture
def program(tmp_path):
    """A made-up `vllm` that writes a result, and then how it was called."""

    def make(result: str | None, status: int = 0) -> str:
        if result is not None:
            (tmp_path / "result.json").write_text(result, encoding="utf-8")
        file = tmp_path / "vllm"
        source = PROGRAM.format(python=sys.executable, folder=str(tmp_path), status=status)
        file.write_text(source, encoding="utf-8")
        file.chmod(0o755)
        return str(file)

    return make


def made(program: str, **environ: str):
    """The load, and what the program was called with."""
    environ = {**os.environ, **environ}
    bench = VllmBench.found(program, environ)
    with served(vllm(lambda call: None)) as server:
        engine = server.engine(key="FAKE_KEY" if "FAKE_KEY" in environ else None)
        load = bench.make(connect(engine, environ=environ), QUERIES, 4)
    folder = Path(program).parent
    words, environment = json.loads((folder / "called.json").read_text())
    return load, words, environment, server.url


def test_a_recorded_answer_becomes_records(program):
    load, *_ = made(program(recorded()))
    told = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert load.seconds == told["duration"]
    assert [r.count for r in load.records] == told["output_lens"] == [32] * 8
    assert [r.text for r in load.records] == told["generated_texts"]
    for record, first, seconds, gaps in zip(
        load.records, told["ttfts"], told["latencies"], told["itls"], strict=True
    ):
        assert record.first == first
        assert record.arrivals[-1][0] == pytest.approx(seconds, abs=1e-6)
        assert len(record.arrivals) == 1 + len(gaps)
    drafts, accepted = told["spec_decode_num_drafts"], told["spec_decode_accepted_tokens"]
    assert load.speculation == Speculation(3 * drafts, accepted, drafts, of="server")
    assert load.speculation.length == pytest.approx(told["spec_decode_acceptance_length"])


def test_it_is_called_with_the_prompts_and_nothing_cut_off(program):
    _, words, _, url = made(program(recorded()))
    assert words[:2] == ["bench", "serve"]
    options = dict(zip(words[2::2], words[3::2], strict=False))
    assert options["--base-url"] == url
    assert (options["--model"], options["--num-prompts"]) == ("stories", "8")
    assert (options["--max-concurrency"], options["--num-warmups"]) == ("4", "4")
    sent = json.loads(options["--extra-body"])
    wanted = {"max_tokens": 32, "temperature": 0.5, "top_k": 0, "top_p": 1.0, "seed": 3}
    assert wanted.items() <= sent.items()
    assert not {"prompt", "stream", "model"} & sent.keys()


def test_prompts_are_passed_as_they_are(program, tmp_path):
    made(program(recorded()))
    prompts = json.loads((tmp_path / "prompts.json").read_text())
    assert prompts == [query.prompt for query in QUERIES]


def test_a_key_is_in_its_environment_and_not_among_its_words(program):
    _, words, environ, _ = made(program(recorded()), FAKE_KEY="secret-secret")
    assert environ["OPENAI_API_KEY"] == "secret-secret"
    assert not any("secret" in word for word in words)


def test_no_key_and_no_proxy_of_the_user_is_in_its_environment(program):
    """An engine without `key` got the user's key of OpenAI, and requests went through proxies."""
    theirs = {"OPENAI_API_KEY": "mine", "https_proxy": "http://p", "HTTP_PROXY": "http://p"}
    _, _, environ, _ = made(program(recorded()), **theirs)
    assert not theirs.keys() & environ.keys()
    assert environ["NETRC"] == os.devnull


@pytest.mark.parametrize(
    ("kind", "url", "says"),
    [
        ("vllm", "http://127.0.0.1:8000", "^$"),
        ("other", "http://localhost:8000/path", "^$"),
        ("sglang", "http://127.0.0.1:8000", "asks /v1/completions, but .* takes /generate"),
        ("llama.cpp", "http://127.0.0.1:8000", "asks /v1/completions, but .* takes /completion"),
        ("vllm", "http://host.example", "follows redirects"),
        ("vllm", "http://localhost.example", "follows redirects"),
    ],
)
def test_which_servers_it_asks(kind, url, says):
    """SGLang was asked /v1/completions with the body of /generate: neither the number of tokens nor
    the sampling was said. And it followed redirects of other machines."""
    client = Client(Wire(Engine("fast", url)), DIALECTS[kind], "stories")
    assert re.search(says, VllmBench("vllm", "0", {}).unfit(client))


def test_it_is_ended_when_it_is_stopped(program, tmp_path):
    """Stop was heard when all its requests were over."""
    file = Path(program(recorded()))
    began = time.monotonic()
    file.write_text(file.read_text().replace("if 0:", "import time; time.sleep(60)\nif 0:"))
    bench, stopped = VllmBench(str(file), "0", os.environ), (tmp_path / "called.json").exists
    with served(vllm(lambda call: None)) as server, pytest.raises(Stopped):
        bench.make(connect(server.engine()), QUERIES, 4, stopped=stopped)
    assert time.monotonic() - began < 10


def test_a_server_that_tells_no_number_of_tokens_has_none(program):
    load, *_ = made(program(recorded(output_lens=[1] * 8)))
    assert {record.count for record in load.records} == {None}


@pytest.mark.parametrize(
    ("result", "status", "says"),
    [
        (None, 1, "last words: ImportError: Please install vllm.bench..$"),
        (None, 0, "`vllm bench serve` failed; correct it, or set WORKBENCH_LOAD to `own`"),
        ("{", 0, "a result that is not JSON"),
        ("[]", 0, "another shape"),
        (recorded(ttfts=["soon"] * 8), 0, "another shape .*ttfts"),
        (recorded(ttfts=[0.1]), 0, "answered 8 of 8"),
        (recorded(output_lens=[33] * 8), 0, "wrote 33 tokens though 32 were asked for"),
        (recorded(completed=7), 0, "answered 7 of 8 requests .*: no word"),
        (
            recorded(completed=7, errors=["", "Trace\n  back\nServerDisconnectedError: gone."]),
            0,
            "the first failure: ServerDisconnectedError: gone.$",
        ),
        (recorded(spec_decode_accepted_tokens=10**6), 0, "contradict each other"),
    ],
)
def test_what_goes_wrong_is_one_sentence(program, result, status, says):
    with pytest.raises(InputError, match=says) as error:
        made(program(result, status))
    assert "\n" not in str(error.value)


def test_which_generator_makes_the_load(program, tmp_path):
    nowhere = {**os.environ, "PATH": str(tmp_path / "nowhere")}
    assert isinstance(generator(nowhere), Own)
    here = program(None)
    on_path = {**os.environ, "PATH": str(tmp_path)}
    for environ in (on_path, {**nowhere, VARIABLE: here}):
        found = generator(environ)
        assert (found.name, found.says) == ("vllm bench serve 0.32.0", "")
    assert isinstance(generator({**on_path, VARIABLE: "own"}), Own)
    assert "made here" in Own().says
    with pytest.raises(InputError, match="name a vllm that runs with WORKBENCH_LOAD"):
        generator({**nowhere, VARIABLE: str(tmp_path / "none")})
