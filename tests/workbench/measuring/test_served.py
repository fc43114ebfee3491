"""Answers of servers as results: only what was told is there."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

import decoders
from decoders import Fate, InputError
from tests.workbench.engines.served import MODEL, a_json, served
from tests.workbench.engines.test_recorded import RECORDED, asked, prompt, replayed
from tests.workbench.measuring.conftest import comparison
from workbench.engines.addresses import Engine
from workbench.engines.client import connect
from workbench.engines.record import Record, Speculation
from workbench.measuring import served as made
from workbench.measuring import session
from workbench.measuring.served import hidden, rebuilt, same_model
from workbench.runs.record import UNTOLD, Run, Server
from workbench.studies.settings import Served
from workbench.studies.study import Job


def record(text="", tokens=None, count=None, **fields) -> Record:
    told = {"arrivals": ((0.5, None),), "seconds": 2.0, "finished": "length", **fields}
    return Record("fast", "vllm", "stories", text, tokens, count, **told)


def recorded(name: str) -> tuple[Record, list[int] | str]:
    with served(replayed(name)) as server:
        client = connect(Engine(name, server.url))
        found, _ = asked(client, name)
        client.wire.close()
    return found, prompt(name)


def converted(name: str, pair):
    found, given = recorded(name)
    ids = list(pair.tokenizer(given).input_ids) if isinstance(given, str) else list(given)
    sample = made.sample(found, 0, ids, pair)
    job = Job(Served(name), 0, 3)
    return found, made.result(job, found, sample, Server("vllm"))


@pytest.mark.parametrize("name", RECORDED)
def test_texts_of_real_servers_are_whole_and_known_figures_agree(name, stories):
    found, result = converted(name, stories)
    text = "".join(token.text for token in result.alone.tokens)
    assert text.strip() == found.text.strip()
    assert len(result.alone.tokens) == result.metrics["new_tokens"] == 24
    # the embedded target wrote it, in other number types
    assert 1 < result.metrics["perplexity"] < 3
    assert result.metrics["bytes_read"] is result.energy.joules is None
    assert (result.decoder, result.seed) == (f"engine:{name}", 3)
    assert 0 < result.laps[0].after_first < result.laps[0].seconds
    written = json.dumps(dataclasses.asdict(result))
    assert "127.0.0.1" not in written


def test_the_fates_of_a_real_speculative_server_are_rebuilt_step_by_step(stories):
    found, result = converted("vllm-draft", stories)
    fates = [token.fate for token in result.alone.tokens]
    assert fates[0] == Fate.SAMPLED
    assert UNTOLD not in fates
    steps = found.speculation.per_step
    assert abs(fates.count(Fate.ACCEPTED) - found.speculation.accepted) <= steps[-1][1]
    assert result.metrics["accepted"] == found.speculation.accepted
    assert result.metrics["target_calls"] == 1 + len(steps)
    assert result.alone.drafted == [0, *(drafted for drafted, _ in steps)]


def test_where_only_totals_are_told_tokens_are_grey_and_figures_are_not(stories):
    found, result = converted("llama-cpp-draft", stories)
    assert {token.fate for token in result.alone.tokens} == {UNTOLD}
    assert result.metrics["acceptance_rate"] == found.speculation.accepted / (
        found.speculation.drafted
    )
    steps = found.speculation.steps
    assert result.metrics["target_calls"] == (None if steps is None else 1 + steps)
    assert result.metrics["alpha"] is None


@pytest.mark.parametrize(
    ("steps", "count", "fates"),
    [
        (((3, 1), (2, 2)), 6, "sampled accepted corrected accepted accepted bonus"),
        (((3, 1), (2, 2)), 4, "sampled accepted corrected accepted"),
        (((0, 0), (1, 0)), 3, "sampled sampled corrected"),
    ],
)
def test_each_step_gives_what_it_accepted_and_one_more(steps, count, fates):
    told = Speculation(sum(d for d, _ in steps), sum(a for _, a in steps), 2, per_step=steps)
    assert rebuilt(count, told) == fates.split()


@pytest.mark.parametrize("count", [3, 7])
def test_steps_that_do_not_explain_the_tokens_explain_none(count):
    assert rebuilt(count, Speculation(5, 3, 2, per_step=((3, 1), (2, 2)))) is None
    assert rebuilt(count, Speculation(5, 3, 2)) is None


def test_an_answer_without_ids_is_split_here(stories):
    sample = made.sample(record(" a little girl", count=3), 0, [1], stories)
    assert sample.text == "".join(token.text for token in sample.tokens)
    assert {token.fate for token in sample.tokens} == {UNTOLD}
    assert sample.tokens[0].round is None


def test_ids_that_are_not_the_targets_are_not_taken_for_its(stories):
    other = record(" a dog", (10**6,), 1)
    assert made.ids_of(other, stories) is None
    assert made.sample(other, 0, [1], stories).text == " a dog"


def test_an_end_that_a_server_leaves_out_is_the_only_one_there_is(stories):
    (end,) = stories.end_tokens
    assert made.ids_of(record(" a", (5,), 1, finished="stop"), stories) == [5, end]
    assert made.ids_of(record(" a", (5,), 1), stories) == [5]


def test_a_text_without_tokens_has_no_figures_but_time(stories):
    empty = record(tokens=(), count=0, arrivals=())
    sample = made.sample(empty, 0, [1], stories)
    found = made.metrics(empty, sample)
    assert (sample.tokens, found["perplexity"], found["decode_seconds"]) == ([], None, None)


def test_a_result_of_an_engine_opens_again(stories):
    _, result = converted("vllm-draft", stories)
    run = Run("ab", "2026-11-26T04:00:00+00:00", "comparison", "x", {"settings": {}}, {}, [result])
    assert Run.from_json(run.dumps()).results == [result]


def test_an_answer_that_ends_at_once_has_its_end(stories):
    assert made.ids_of(record(tokens=(), finished="stop"), stories) == sorted(stories.end_tokens)


PROMPT, TOKENS = "Once upon a time", 8


def answered(stories, meter, text: str | None):
    """The last request to a server that writes a text, by default greedy's, and its result."""
    if text is None:
        text = decoders.generate(stories, PROMPT, "greedy", max_new_tokens=TOKENS).text
    choice = {"text": text, "finish_reason": "length"}
    answer = {"choices": [choice], "model": MODEL, "usage": {"completion_tokens": TOKENS}}
    with served(
        lambda call: a_json({"data": [{"id": MODEL}]} if call.body is None else answer)
    ) as server:
        engine = Engine("fast", server.url, kind="other")
        study = comparison("engine:fast", prompt=PROMPT, max_new_tokens=TOKENS, temperature=0.0)
        *_, ended = session.run(stories, study, meter=meter, engines=lambda: {"fast": engine})
    (result,) = ended.run.results
    return server.calls[-1].body, result


def pair(name: str):
    return SimpleNamespace(target=SimpleNamespace(config=SimpleNamespace(name_or_path=name)))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("qwen3-8b", "Qwen/Qwen3-8B"),
        ("/models/Qwen3-8B-F16.gguf", "/models/Qwen3-8B"),
        ("Qwen3-8B.gguf", "Qwen/Qwen3-8B"),
        ("stories", "/home/me/assets/stories/target"),
        ("assets/stories/target", "/home/me/assets/stories/target"),
        ("./assets/stories/target/", "/home/me/assets/stories/target"),
    ],
)
def test_names_of_the_target(theirs, ours):
    assert same_model(theirs, pair(ours))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("Qwen/Qwen3-8B-Base", "Qwen/Qwen3-8B"),
        ("Other/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("Qwen3-8B-Q4_K_M.gguf", "Qwen/Qwen3-8B"),
        ("assets/stories/draft", "/home/me/assets/stories/target"),
        ("", "Qwen/Qwen3-8B"),
        ("stories", ""),
    ],
)
def test_names_of_others(theirs, ours):
    assert not same_model(theirs, pair(ours))


def test_a_server_that_tells_only_text_is_judged_by_its_text(stories, unmetered):
    """Its text is asked for by text, and where it parts from ours, letters tell."""
    _, result = answered(stories, unmetered, " there was a purple elephant")
    assert result.agreement.verdict in ("fault", "cannot tell")
    assert result.agreement.differing == 1
    assert "It tells no token ids" in result.remarks[0]
    body, result = answered(stories, unmetered, None)
    assert (result.agreement.verdict, body["prompt"]) == ("same", PROMPT)


def test_what_cannot_be_judged_says_why(stories, unmetered, monkeypatch):
    def refused(*_, **__):
        raise InputError("Quantised weights have no float64.")

    monkeypatch.setattr(decoders, "compare_greedy", refused)
    _, result = answered(stories, unmetered, " a dog")
    assert result.agreement is None
    assert result.remarks[-1] == "Its text gets no verdict: Quantised weights have no float64."


def test_an_address_is_hidden_wherever_it_stands():
    engine = Engine("fast", "https://host.example:8443/prefix")
    for words in ("https://host.example:8443/prefix", "host.example:8443", "for host.example"):
        assert "host.example" not in hidden(f"It failed: {words}.", engine)
