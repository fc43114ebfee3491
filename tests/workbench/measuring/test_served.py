"""Answers of servers as results, and an engine in a comparison: only what was told is there."""

import itertools
import json
import threading
import time
from types import SimpleNamespace

import pytest

import decoders
from decoders import InputError
from tests.workbench.engines.served import (
    MODEL,
    Reply,
    a_json,
    a_stream,
    chunk,
    served,
    usage,
    vllm,
)
from tests.workbench.engines.test_recorded import RECORDED, asked, prompt, replayed
from tests.workbench.measuring.conftest import comparison
from workbench.engines.addresses import Engine
from workbench.engines.client import Record, connect
from workbench.measuring import served as made
from workbench.measuring import session
from workbench.measuring.served import same_model
from workbench.runs.events import Ended, Progress
from workbench.runs.record import UNTOLD, Run, Server


def record(text="", tokens=None, count=None, **fields) -> Record:
    told = {"arrivals": ((0.5, None),), "seconds": 2.0, "finished": "length", **fields}
    return Record(text, tokens, count, **told)


def recorded(name: str) -> tuple[Record, list[int] | str]:
    with served(replayed(name)) as server:
        client = connect(Engine(name, server.url))
        found, _ = asked(client, name)
        client.wire.close()
    return found, prompt(name)


@pytest.mark.parametrize("name", RECORDED)
def test_texts_of_real_servers_are_whole_and_known_figures_agree(name, stories):
    found, given = recorded(name)
    ids = list(stories.tokenizer(given).input_ids) if isinstance(given, str) else list(given)
    sample = made.sample(found, 0, ids, stories)
    figures = made.metrics(found, sample)
    assert "".join(token.text for token in sample.tokens).strip() == found.text.strip()
    assert {token.fate for token in sample.tokens} == {UNTOLD}
    assert len(sample.tokens) == figures["new_tokens"] == 24
    assert 1 < figures["perplexity"] < 3  # the embedded target wrote it, in other types
    assert figures["bytes_read"] is figures["accepted"] is None
    assert 0 < figures["decode_seconds"] < figures["seconds"]


def test_an_end_that_a_server_leaves_out_is_the_only_one_there_is(stories):
    (end,) = stories.end_tokens
    assert made.ids_of(record(" a", (5,), 1, finished="stop"), stories) == [5, end]
    assert made.ids_of(record(" a", (5,), 1), stories) == [5]
    assert made.ids_of(record(tokens=(), finished="stop"), stories) == [end]


def test_a_text_without_tokens_has_no_figures_but_time(stories):
    empty = record(tokens=(), count=0, arrivals=())
    sample = made.sample(empty, 0, [1], stories)
    found = made.metrics(empty, sample)
    assert (sample.tokens, found["perplexity"], found["decode_seconds"]) == ([], None, None)


@pytest.mark.parametrize(("theirs", "ours", "same"), [
    ("qwen3-8b", "Qwen/Qwen3-8B", True),
    ("/models/Qwen3-8B-F16.gguf", "/models/Qwen3-8B", True),
    ("stories", "/home/me/assets/stories/target", True),
    ("./assets/stories/target/", "/home/me/assets/stories/target", True),
    ("Qwen/Qwen3-8B-Base", "Qwen/Qwen3-8B", False),
    ("Other/Qwen3-8B", "Qwen/Qwen3-8B", False),
    ("Qwen3-8B-Q4_K_M.gguf", "Qwen/Qwen3-8B", False),
    ("assets/stories/draft", "/home/me/assets/stories/target", False),
    ("", "Qwen/Qwen3-8B", False),
    ("stories", "", False),
])  # fmt: skip
def test_names_of_the_target_and_of_others(theirs, ours, same):
    config = SimpleNamespace(name_or_path=ours)
    pair = SimpleNamespace(target=SimpleNamespace(config=config))
    assert same_model(theirs, pair) == same


PROMPT, TOKENS = "Once upon a time", 12


@pytest.fixture(scope="module")
def greedy(stories) -> list[int]:
    return decoders.generate(stories, PROMPT, "greedy", max_new_tokens=TOKENS).tokens


def study(*names: str, **shared):
    settings = {"max_new_tokens": TOKENS, "temperature": 0.0, **shared}
    return comparison(*names, "engine:fast", prompt=PROMPT, **settings)


def run(pair, meter, server, what=None, **fields) -> Run:
    """The run of a study that asks a server."""
    engines = {"fast": Engine("fast", server.url, **fields)}
    *_, ended = session.run(pair, what or study("greedy"), meter=meter, engines=lambda: engines)
    assert isinstance(ended, Ended)
    return ended.run


def of_engine(run):
    return next(result for result in run.results if result.decoder == "engine:fast")


@pytest.mark.parametrize("greedys", [True, False])
def test_a_server_that_tells_only_text_is_judged_by_its_text(stories, unmetered, greedy, greedys):
    """Its text is asked for by text, and where it parts from ours, letters tell."""
    text = stories.tokenizer.decode(greedy) if greedys else " there was a purple elephant"
    choice = {"text": text, "finish_reason": "length"}
    answer = {"choices": [choice], "model": MODEL, "usage": {"completion_tokens": TOKENS}}
    with served(
        lambda call: a_json({"data": [{"id": MODEL}]} if call.body is None else answer)
    ) as server:
        (result,) = run(stories, unmetered, server, study(), kind="other").results
    assert server.calls[-1].body["prompt"] == PROMPT
    assert result.agreement.verdict in (("same",) if greedys else ("fault", "cannot tell"))
    assert result.agreement.differing == (0 if greedys else 1)
    assert "It tells no token ids" in result.remarks[0]


def short() -> Reply:
    """The answer to the short request before the timed ones."""
    return a_stream([chunk("x", [1], finish_reason="length")])


def writes(pair, ids):
    """A server that writes these tokens, in two pieces."""
    texts = [pair.tokenizer.decode(ids[:4]), pair.tokenizer.decode(ids[4:])]
    pieces = [chunk(texts[0], ids[:4]), chunk(texts[1], ids[4:], finish_reason="length")]
    whole = [*pieces, usage(len(ids))]
    return vllm(lambda call: a_stream(whole) if call.body["max_tokens"] >= len(ids) else short())


def test_an_engine_is_asked_for_the_same_prompt_and_sampling(stories, unmetered, greedy):
    what = study("multinomial", temperature=0.7, top_k=20, top_p=0.9, seed=5, timings=2)
    with served(writes(stories, greedy)) as server:
        found = run(stories, unmetered, server, what)
    result = of_engine(found)
    warm, *asked = [call.body for call in server.calls if call.body]
    assert warm["max_tokens"] < TOKENS
    assert len(asked) == len(result.laps) == 2
    for body in asked:
        assert body["prompt"] == list(stories.tokenizer(PROMPT).input_ids)
        assert (body["temperature"], body["top_k"], body["top_p"]) == (0.7, 20, 0.9)
        assert (body["seed"], body["max_tokens"]) == (5, TOKENS)
    assert result.server == Server("vllm", "0.32.0", "stories")
    assert result.agreement is None
    assert result.metrics["new_tokens"] == TOKENS
    assert result.metrics["perplexity"] > 1
    assert found.settings["decoders"] == ["multinomial", "engine:fast"]


def test_the_same_greedy_text_is_said_to_be_the_same(stories, unmetered, greedy):
    with served(writes(stories, greedy)) as server:
        found = run(stories, unmetered, server)
        alone = run(stories, unmetered, server, study())  # greedy did not run
    for each in (found, alone):
        agreement = of_engine(each).agreement
        assert (agreement.verdict, agreement.differing) == ("same", 0)


def test_another_greedy_text_is_a_fault_unless_rounding_explains_it(stories, unmetered, greedy):
    wrong = [*greedy[:5], (greedy[5] + 1) % 2000, *greedy[6:]]
    with served(writes(stories, wrong)) as server:
        found = run(stories, unmetered, server, dtype="float32")
        unsaid = run(stories, unmetered, server)
    agreement = of_engine(found).agreement
    assert (agreement.verdict, agreement.differs_at, agreement.near_tie) == ("fault", 5, False)
    assert agreement.dtype == "float32"
    assert "the second text" in agreement.says
    # a server that does not tell is taken to round most, which explains no such difference
    assert of_engine(unsaid).agreement.verdict == "fault"
    assert of_engine(unsaid).agreement.dtype == "bfloat16"


def test_another_model_is_asked_by_text_and_gets_no_verdict(stories, unmetered, greedy):
    def answers(call):
        if call.path == "/v1/models":
            return a_json({"data": [{"id": "Qwen/Qwen3-8B", "owned_by": "vllm"}]})
        last = {"finish_reason": "length"}
        pieces = [chunk(" a red", [70_000]), chunk(" ball", [3], **last), usage(TOKENS)]
        return a_stream([{**piece, "model": "Qwen/Qwen3-8B"} for piece in pieces])

    with served(answers) as server:
        result = of_engine(run(stories, unmetered, server))
    assert {call.body["prompt"] for call in server.calls if call.body} == {PROMPT}
    assert result.alone.text == " a red ball" == "".join(t.text for t in result.alone.tokens)
    assert {token.fate for token in result.alone.tokens} == {UNTOLD}
    assert result.agreement is None
    assert "It serves 'Qwen/Qwen3-8B', by its name another model" in result.remarks[0]


def first_then(*pieces, end=b""):
    """Answers the short request, and the others with these pieces."""
    count = itertools.count()
    return vllm(lambda call: a_stream(pieces, end) if next(count) else short())


BEFORE = chunk(" a little", [5, 6])


@pytest.mark.parametrize(("answers", "says", "kept"), [
    (first_then(BEFORE), "broke off the answer", True),
    (first_then(BEFORE, {"error": {"message": "out of memory"}}), "out of memory", True),
    (vllm(lambda call: a_json({"error": "no"}, 500)), "failed (HTTP 500)", False),
    (lambda call: a_json({"data": 5}), "lists no models", False),
])  # fmt: skip
def test_a_server_that_fails_keeps_what_came_and_the_others_go_on(
    answers, says, kept, stories, unmetered
):
    with served(answers) as server:
        found = run(stories, unmetered, server, study("greedy", "speculative"))
    result = of_engine(found)
    assert says in result.error
    assert "\n" not in result.error
    assert "127.0.0.1" not in json.dumps(found.to_json())
    assert result.alone.text.startswith(" a little") == kept
    others = [each for each in found.results if each is not result]
    assert [each.alone.finished for each in others] == ["budget", "budget"]


def test_a_timing_with_another_number_of_tokens_does_not_count(stories, unmetered, greedy):
    """The tokens of the first text were divided by the seconds of a short one."""
    count = itertools.count()

    def answers(call):
        ids = greedy[:3] if next(count) == 2 else greedy  # after the short request and a whole one
        last = chunk("x", ids, finish_reason="length")
        return a_stream([last if call.body["max_tokens"] == TOKENS else chunk("x", [1]) | last])

    with served(vllm(answers)) as server:
        result = of_engine(run(stories, unmetered, server, study(temperature=1.0, timings=2)))
    assert len(result.laps) == 1
    assert result.remarks == [f"Timing 2 wrote 3 tokens, not {TOKENS}; the 1 before it counts."]


def test_an_address_that_a_server_repeats_is_hidden(stories, unmetered):
    place = []

    def answers(call):
        if call.body["max_tokens"] < TOKENS:
            return short()
        return a_stream([BEFORE, {"error": {"message": f"{place[0]} lost its worker"}}])

    with served(vllm(answers)) as server:
        place.append(server.url)
        found = run(stories, unmetered, server)
    assert "[address] lost its worker" in of_engine(found).error
    assert "127.0.0.1" not in found.dumps()


@pytest.mark.parametrize(("url", "words", "told"), [
    ("http://10.0.0.5:8000", "no route to 10.0.0.5:8000.", "no route to [address]."),
    ("http://10.0.0.5:8000", "10.0.0.51 is another", "10.0.0.51 is another"),
    ("https://gpu7.corp/v", "not valid for 'gpu7.corp'", "not valid for '[address]'"),
    ("http://llama:8080", "meta-llama/X by llama:8080", "meta-llama/X by [address]"),
])  # fmt: skip
def test_only_whole_addresses_are_hidden(url, words, told):
    """The model "meta-llama/X" of a host called "llama" became "meta-[address]/X"."""
    assert made.hidden(words, Engine("fast", url)) == told


@pytest.mark.parametrize("silent", [False, True])
def test_stop_is_heard_while_a_server_answers(silent, stories, unmetered):
    stop, over = threading.Event(), threading.Event()

    def endless():
        yield b"data: %s\n\n" % json.dumps(BEFORE).encode()
        while not over.wait(10 if silent else 0.02):
            yield b": still here\n\n"

    def answers(call):
        if call.body["max_tokens"] < TOKENS:
            return short()
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
    assert took < 1  # it once waited for a verdict on half a text
    assert event.run.cancelled
    (result,) = event.run.results
    told = (result.error, result.alone.finished, result.alone.text)
    assert told == (None, "cancelled", " a little")


def test_an_engine_that_nobody_named_is_refused_before_any_work(stories):
    with pytest.raises(InputError, match="There is no engine 'fast' here: whoever runs"):
        session.run(stories, study("greedy"), engines=dict)
    other = {"fats": Engine("fats", "http://127.0.0.1:9")}
    with pytest.raises(InputError, match="did you mean 'fats'"):
        session.run(stories, study("greedy"), engines=lambda: other)


def test_ids_that_are_not_the_targets_are_not_taken_for_its(stories):
    other = record(" a dog", (10**6,), 1)
    assert made.ids_of(other, stories) is None
    assert made.sample(other, 0, [1], stories).text == " a dog"
