"""An engine in a comparison: its server behaves, or dies, or is silent; the others go on."""

import itertools
import json
import threading
import time

import pytest

import decoders
from decoders import InputError
from tests.workbench.engines.served import Reply, a_json, a_stream, chunk, served, usage, vllm
from tests.workbench.measuring.conftest import comparison
from workbench.engines.addresses import Engine
from workbench.measuring import served as measuring
from workbench.measuring import session
from workbench.runs.events import Ended, Progress
from workbench.runs.record import UNTOLD

PROMPT = "Once upon a time"
TOKENS = 12


@pytest.fixture(scope="module")
def greedy(stories) -> list[int]:
    return decoders.generate(stories, PROMPT, "greedy", max_new_tokens=TOKENS).tokens


def study(*names: str, **shared):
    settings = {"max_new_tokens": TOKENS, "temperature": 0.0, **shared}
    return comparison(*names, "engine:fast", prompt=PROMPT, **settings)


def run(pair, meter, server, what=None, cancel=None, **fields):
    """All events of a study that asks a server, and its run."""
    engine = Engine("fast", server.url, **fields)
    events = list(
        session.run(
            pair, what or study("greedy"), meter=meter, cancel=cancel,
            engines=lambda: {"fast": engine},
        )
    )  # fmt: skip
    assert isinstance(events[-1], Ended)
    return events, events[-1].run


def of_engine(run):
    return next(result for result in run.results if result.decoder == "engine:fast")


def writes(pair, ids, **fields):
    """A server that writes these tokens, in two pieces."""
    texts = [pair.tokenizer.decode(ids[:4]), pair.tokenizer.decode(ids[4:])]

    def answer(call):
        if call.body["max_tokens"] < len(ids):  # the short request before the timed ones
            return a_stream([chunk("x", [1], finish_reason="length")])
        pieces = [chunk(texts[0], ids[:4]), chunk(texts[1], ids[4:], finish_reason="length")]
        return a_stream([*pieces, usage(len(ids), **fields)])

    return vllm(answer)


def test_an_engine_is_asked_for_the_same_prompt_and_sampling(stories, unmetered, greedy):
    what = study("multinomial", temperature=0.7, top_k=20, top_p=0.9, seed=5, timings=2)
    with served(writes(stories, greedy)) as server:
        _, found = run(stories, unmetered, server, what)
    result = of_engine(found)
    warm, *asked = [call.body for call in server.calls if call.body]
    assert warm["max_tokens"] < TOKENS
    assert len(asked) == len(result.laps) == 2
    for body in asked:
        assert body["prompt"] == list(stories.tokenizer(PROMPT).input_ids)
        assert (body["temperature"], body["top_k"], body["top_p"]) == (0.7, 20, 0.9)
        assert (body["seed"], body["max_tokens"]) == (5, TOKENS)
    assert (result.server.kind, result.server.version) == ("vllm", "0.32.0")
    assert result.server.model == "stories"
    assert result.agreement is None
    assert result.metrics["new_tokens"] == TOKENS
    assert result.metrics["perplexity"] > 1
    assert found.settings["decoders"] == ["multinomial", "engine:fast"]


def test_no_address_is_in_a_run(stories, unmetered, greedy):
    with served(writes(stories, greedy)) as server:
        events, found = run(stories, unmetered, server)
    told = found.dumps() + repr(events)
    assert "127.0.0.1" not in told
    assert "http" not in found.dumps()


def test_the_same_greedy_text_is_said_to_be_the_same(stories, unmetered, greedy):
    with served(writes(stories, greedy)) as server:
        _, found = run(stories, unmetered, server)
        _, alone = run(stories, unmetered, server, study())  # greedy did not run
    for each in (found, alone):
        agreement = of_engine(each).agreement
        assert (agreement.verdict, agreement.differing) == ("same", 0)


def test_another_greedy_text_is_a_fault_unless_rounding_explains_it(stories, unmetered, greedy):
    wrong = [*greedy[:5], (greedy[5] + 1) % 2000, *greedy[6:]]
    with served(writes(stories, wrong)) as server:
        _, found = run(stories, unmetered, server, dtype="float32")
        _, unsaid = run(stories, unmetered, server)
    agreement = of_engine(found).agreement
    assert (agreement.verdict, agreement.differs_at, agreement.near_tie) == ("fault", 5, False)
    assert agreement.dtype == "float32"
    assert "the second text" in agreement.says
    # a server that does not tell is taken to round most, which explains no such difference
    assert of_engine(unsaid).agreement.verdict == "fault"
    assert of_engine(unsaid).agreement.dtype == "bfloat16"


def test_steps_that_are_told_become_fates(stories, unmetered, greedy):
    told = {
        "num_draft_tokens": 12, "num_accepted_draft_tokens": 7, "num_spec_steps": 4,
        "per_step_drafted": [3] * 4, "per_step_accepted": [3, 2, 0, 2],
    }  # fmt: skip
    with served(writes(stories, greedy, metrics={"speculative_decoding": told})) as server:
        _, found = run(stories, unmetered, server)
    result = of_engine(found)
    fates = [token.fate for token in result.alone.tokens]
    assert fates[:5] == ["sampled", "accepted", "accepted", "accepted", "bonus"]
    assert result.metrics["acceptance_rate"] == 7 / 12
    assert [token.round for token in result.alone.tokens] == [0] * 4 + [1] * 8


def test_another_model_is_asked_by_text_and_gets_no_verdict(stories, unmetered, greedy):
    def answers(call):
        if call.path == "/v1/models":
            return a_json({"data": [{"id": "Qwen/Qwen3-8B", "owned_by": "vllm"}]})
        if call.path == "/version":
            return a_json({"version": "1"})
        last = {"finish_reason": "length"}
        pieces = [chunk(" a red", [70_000]), chunk(" ball", [3], **last), usage(TOKENS)]
        return a_stream([{**piece, "model": "Qwen/Qwen3-8B"} for piece in pieces])

    with served(answers) as server:
        _, found = run(stories, unmetered, server)
    result = of_engine(found)
    assert {call.body["prompt"] for call in server.calls if call.body} == {PROMPT}
    assert result.alone.text == " a red ball" == "".join(t.text for t in result.alone.tokens)
    assert {token.fate for token in result.alone.tokens} == {UNTOLD}
    assert result.agreement is None
    assert "It serves 'Qwen/Qwen3-8B', by its name another model" in result.remarks[0]


def first_then(*pieces, end=b""):
    """Answers the short request, and the others with these pieces."""
    count = itertools.count()
    short = [chunk("x", [1], finish_reason="length")]
    return vllm(lambda call: a_stream(pieces, end) if next(count) else a_stream(short))


BEFORE = chunk(" a little", [5, 6])


@pytest.mark.parametrize(
    ("answers", "says", "kept"),
    [
        (first_then(BEFORE), "broke off the answer", True),
        (first_then(BEFORE, b"data: {no json\n\n"), "no JSON", True),
        (first_then(*[BEFORE] * 100), f"more than the {TOKENS} tokens asked for", True),
        (first_then(BEFORE, {**BEFORE, "model": "other"}), "answered with the model", True),
        (first_then(BEFORE, {"error": {"message": "out of memory"}}), "out of memory", True),
        (vllm(lambda call: a_json({"error": "no"}, 500)), "failed (HTTP 500)", False),
        (vllm(lambda call: Reply(b"<html>")), "no JSON", False),
        (vllm(lambda call: Reply(b"", 302, {"location": "http://x"})), "redirects", False),
        (lambda call: a_json({"data": 5}), "lists no models", False),
    ],
)
def test_a_server_that_fails_keeps_what_came_and_the_others_go_on(
    answers, says, kept, stories, unmetered
):
    with served(answers) as server:
        _, found = run(stories, unmetered, server, study("greedy", "speculative"))
    result = of_engine(found)
    assert says in result.error
    assert "\n" not in result.error
    assert "127.0.0.1" not in json.dumps(found.to_json())
    assert result.alone.text.startswith(" a little") == kept
    others = [each for each in found.results if each is not result]
    assert [each.alone.finished for each in others] == ["budget", "budget"]


def test_no_server_is_one_sentence_without_its_address(stories, unmetered):
    engine = Engine("fast", "http://127.0.0.1:9")
    *_, ended = session.run(
        stories, study("greedy"), meter=unmetered, engines=lambda: {"fast": engine}
    )
    error = of_engine(ended.run).error
    assert error.startswith("Engine fast cannot be reached")
    assert "127.0.0.1" not in error


def test_a_timing_with_another_number_of_tokens_does_not_count(stories, unmetered, greedy):
    """The tokens of the first text were divided by the seconds of a short one."""
    count = itertools.count()

    def answers(call):
        ids = greedy[:3] if next(count) == 2 else greedy  # after the short request and a whole one
        last = chunk("x", ids, finish_reason="length")
        return a_stream([last if call.body["max_tokens"] == TOKENS else chunk("x", [1]) | last])

    with served(vllm(answers)) as server:
        what = study(temperature=1.0, timings=2)
        _, found = run(stories, unmetered, server, what)
    result = of_engine(found)
    assert len(result.laps) == 1
    assert result.remarks == [f"Timing 2 wrote 3 tokens, not {TOKENS}; the 1 before it counts."]


def test_an_address_that_a_server_repeats_is_hidden(stories, unmetered):
    place = []

    def answers(call):
        if call.body["max_tokens"] < TOKENS:
            return a_stream([chunk("x", [1], finish_reason="length")])
        return a_stream([BEFORE, {"error": {"message": f"{place[0]} lost its worker"}}])

    with served(vllm(answers)) as server:
        place.append(server.url)
        _, found = run(stories, unmetered, server)
    assert "[address] lost its worker" in of_engine(found).error
    assert "127.0.0.1" not in found.dumps()


@pytest.mark.parametrize(
    ("url", "words", "told"),
    [
        ("http://10.0.0.5:8000", "no route to 10.0.0.5:8000.", "no route to [address]."),
        ("http://10.0.0.5:8000", "10.0.0.51 is another", "10.0.0.51 is another"),
        ("https://gpu7.corp/v", "not valid for 'gpu7.corp'", "not valid for '[address]'"),
        ("http://llama:8080", "meta-llama/X by llama:8080", "meta-llama/X by [address]"),
    ],
)
def test_only_whole_addresses_are_hidden(url, words, told):
    """The model "meta-llama/X" of a host called "llama" became "meta-[address]/X"."""
    assert measuring.hidden(words, Engine("fast", url)) == told


@pytest.mark.parametrize("silent", [False, True])
def test_stop_is_heard_while_a_server_answers(silent, stories, unmetered, monkeypatch):
    monkeypatch.setattr(measuring, "UPDATE_SECONDS", 0.0)
    monkeypatch.setattr(measuring, "STOP_SECONDS", 0.1)
    stop, over = threading.Event(), threading.Event()

    def endless():
        yield b"data: %s\n\n" % json.dumps(BEFORE).encode()
        while not over.wait(10 if silent else 0.02):
            yield b": still here\n\n"

    def answers(call):
        if call.body["max_tokens"] < TOKENS:
            return a_stream([chunk("x", [1], finish_reason="length")])
        return Reply(endless(), type="text/event-stream")

    with served(vllm(answers)) as server:
        engine = Engine("fast", server.url)
        events = session.run(
            stories, study(), meter=unmetered, cancel=stop, engines=lambda: {"fast": engine}
        )
        for event in events:
            if isinstance(event, Progress):
                assert "".join(t.text for t in event.tokens) == " a little"
                assert event.done == 2
                stop.set()
                began = time.monotonic()
        took = time.monotonic() - began
        over.set()
    assert took < 3
    assert event.run.cancelled
    (result,) = event.run.results
    assert (result.error, result.alone.finished) == (None, "cancelled")
    assert result.alone.text == " a little"


@pytest.mark.parametrize(
    ("shared", "says"),
    [
        ({"temperature": 1.0, "top_p": 0.9, "min_p": 0.1}, "in another order than here"),
        ({"temperature": 1.0, "top_n_sigma": 1.0}, "cannot be asked for `top_n_sigma`"),
        ({"penalties": True}, "cannot be asked for `penalties`"),
    ],
)
def test_sampling_that_cannot_be_said_is_refused_by_that_engine_alone(
    shared, says, stories, unmetered, greedy
):
    what = study("multinomial", **shared)
    with served(writes(stories, greedy)) as server:
        _, found = run(stories, unmetered, server, what)
    assert says in of_engine(found).error
    assert found.results[0].error is None
    assert not any(call.body for call in server.calls)


def test_an_engine_that_nobody_named_is_refused_before_any_work(stories):
    with pytest.raises(InputError, match="There is no engine 'fast' here: whoever runs"):
        session.run(stories, study("greedy"), engines=dict)
    other = {"fats": Engine("fats", "http://127.0.0.1:9")}
    with pytest.raises(InputError, match="did you mean 'fats'"):
        session.run(stories, study("greedy"), engines=lambda: other)


def test_a_study_without_engines_never_asks_where_they_are(stories, unmetered):
    def engines():
        raise AssertionError

    what = comparison("greedy", prompt=PROMPT)
    *_, ended = session.run(stories, what, meter=unmetered, engines=engines)
    assert ended.run.results[0].error is None
