"""A session runs the jobs of a study: events in order, and a result for each job."""

import json
import math
import threading
from contextlib import closing
from dataclasses import replace

import pytest
import torch

import decoders
from decoders import InputError, catalog
from tests.pairwise import pairwise
from tests.workbench.measuring.conftest import (
    FAILURES,
    FEW,
    batch,
    break_decoder,
    broken,
    comparison,
    make,
    out_of_memory,
    results,
)
from workbench.measuring import session
from workbench.measuring.meter import Meter, NoGauge
from workbench.measuring.session import References, agreement
from workbench.runs.events import Ended, Finished, Progress, Started
from workbench.runs.record import Alternative, Energy, Result, Sample, TokenRecord
from workbench.runs.store import RunStore
from workbench.studies.prompts import Prompt, PromptSet
from workbench.studies.study import Job

KINDS = ("comparison", "batch")


def test_events_come_in_order_and_say_which_job_they_are_of(pair, unmetered):
    events = list(
        session.run(pair, comparison("mtad", "greedy", repeats=2, seed=5), meter=unmetered)
    )
    outline = [
        (type(e), (e.at.decoder, e.at.repeat, e.at.job, e.at.jobs))
        for e in events
        if isinstance(e, (Started, Finished))
    ]
    jobs = [("greedy", 0, 0, 4), ("mtad", 0, 1, 4), ("greedy", 1, 2, 4), ("mtad", 1, 3, 4)]
    assert outline == [(kind, job) for job in jobs for kind in (Started, Finished)]
    assert [isinstance(e, Ended) for e in events] == [False] * (len(events) - 1) + [True]
    run = events[-1].run
    assert [(r.decoder, r.repeat, r.seed) for r in run.results] == [
        ("greedy", 0, 5), ("mtad", 0, 5), ("greedy", 1, 6), ("mtad", 1, 6),
    ]  # fmt: skip
    assert not run.cancelled
    assert (run.kind, run.title, run.settings["decoders"]) == (
        "comparison",
        "abc",
        ["mtad", "greedy"],
    )
    assert run.environment["target"]["parameters"] == sum(
        p.numel() for p in pair.target.parameters()
    )


def test_each_finished_event_holds_the_run_so_far(pair, unmetered):
    events = list(session.run(pair, batch("lookup", schemes=("unpadded",)), meter=unmetered))
    finished = [e for e in events if isinstance(e, Finished)]
    assert [len(e.run.results) for e in finished] == [1, 2, 3, 4]
    assert all(e.run.results[-1] is e.result for e in finished)
    assert [(e.at.batch_size, e.at.scheme) for e in finished] == [(1, "unpadded")] * 2 + [
        (3, "unpadded")
    ] * 2


def test_progress_counts_tokens_of_all_requests(pair, unmetered, every_round):
    events = session.run(pair, batch("lookup", sizes=(3,), schemes=("unpadded",)), meter=unmetered)
    updates = [e for e in events if isinstance(e, Progress)]
    assert {e.budget for e in updates} == {60}  # the last batch is filled up from the start
    for decoder in ("greedy", "lookup"):
        done = [e.done for e in updates if e.at.decoder == decoder]
        assert done == sorted(done)
        assert 0 < done[0] < done[-1] == 60
    assert all((e.eta_seconds or 0) >= 0 and e.tokens == [] for e in updates)
    assert updates[-1].eta_seconds is not None


def test_progress_shows_what_stands_and_is_a_snapshot(pair, unmetered, every_round):
    events = list(session.run(pair, comparison("beam_search", "speculative"), meter=unmetered))
    for name, provisional in (("beam_search", True), ("speculative", False)):
        updates = [e for e in events if isinstance(e, Progress) and e.at.decoder == name]
        assert updates[0].provisional is provisional
        assert all(0 < e.done == len(e.tokens) <= e.budget == 16 for e in updates)
        assert len(updates[0].rounds) == 1  # it did not grow with the decoder
        result = next(r for r in results(events) if r.decoder == name)
        assert [t.id for t in updates[-1].tokens] == [t.id for t in result.alone.tokens]


def test_the_counts_equal_those_recomputed_from_the_exported_json(run):
    data = json.loads(json.dumps(run.to_json(), allow_nan=False))
    for result in data["results"]:
        m, sample = result["metrics"], result["samples"][0]
        rounds, tokens = sample["rounds"], sample["tokens"]
        fates = [t["fate"] for r in rounds for t in r["trials"]]
        drafted = [f for f in fates if f in ("accepted", "rejected", "discarded")]
        assert m["new_tokens"] == len(tokens)
        assert m["drafted"] == len(drafted)
        assert m["tested"] == sum(f != "discarded" for f in drafted)
        assert m["accepted"] == fates.count("accepted")
        assert m["target_calls"] == sum(r["target_calls"] for r in rounds)
        assert m["draft_calls"] == sum(r["draft_calls"] for r in rounds)
        assert m["block_efficiency"] == pytest.approx(len(tokens) / m["target_calls"])
        assert m["perplexity"] == pytest.approx(
            math.exp(-sum(t["log_p"] for t in tokens) / len(tokens))
        )
        assert m["tokens_per_second"] == pytest.approx(len(tokens) / m["seconds"])
        standing = []
        for r in rounds:
            standing[r["keep"] :] = r["nodes"]
        assert standing == [t["node"] for t in tokens]


# ---- The tokens that must be the same


def test_at_temperature_0_exact_decoders_are_compared_with_greedy(pair, unmetered):
    names = ("greedy", "speculative", "dsbd", "mtad", "beam_search")
    found = {
        r.decoder: r.agreement
        for r in results(session.run(pair, comparison(*names, temperature=0.0), meter=unmetered))
    }
    for name in ("speculative", "dsbd"):
        assert (found[name].reference, found[name].compared, found[name].differing) == (
            "greedy",
            1,
            0,
        )
    assert found["greedy"] is found["mtad"] is found["beam_search"] is None
    warm = results(session.run(pair, comparison("greedy", "speculative"), meter=unmetered))
    assert [r.agreement for r in warm] == [None, None]


def test_every_scheme_gives_greedys_tokens_at_temperature_0(pair, unmetered):
    first, *others = results(session.run(pair, batch("lookup", "speculative"), meter=unmetered))
    assert first.agreement is None
    assert {
        (r.agreement.reference, r.agreement.compared, r.agreement.differing) for r in others
    } == {("greedy", 5, 0)}
    assert not any(r.errors for r in (first, *others))
    assert all(r.metrics["at_once"] == r.batch_size for r in others)


def test_sampled_tokens_do_not_depend_on_the_scheme_either(pair, unmetered):
    found = results(
        session.run(pair, batch("speculative", temperature=1.0, sizes=(1, 2)), meter=unmetered)
    )
    compared = [r.agreement for r in found if r.agreement is not None]
    assert {(a.reference, a.differing) for a in compared} == {("greedy", 0), ("speculative", 0)}


def test_another_output_is_counted_if_the_law_is_another(pair, unmetered, monkeypatch):
    """`differing` really compares: a beam search that claims to be exact is found out."""
    honest = results(session.run(pair, batch("beam_search", sizes=(1,)), meter=unmetered))[-1]
    assert honest.agreement is None
    monkeypatch.setattr(decoders.catalog["beam_search"], "law", "target")
    liar = results(session.run(pair, batch("beam_search", sizes=(1,)), meter=unmetered))[-1]
    assert liar.agreement.reference == "greedy"
    assert liar.agreement.differing > 0


def test_chunks_of_prompts_change_no_token(pair, unmetered):
    study = batch("speculative", schemes=("vanilla", "unpadded", "dynamic"), prefill_chunk=4)
    *_, ended = session.run(pair, study, meter=unmetered)
    assert {r.agreement.differing for r in ended.run.results if r.agreement} == {0}
    assert {r.batch_size for r in ended.run.results if r.metrics["decode_seconds"] is not None} == {
        1
    }
    assert ended.run.settings["prefill_chunk"] == 4


def test_a_memory_budget_lets_requests_wait(pair, unmetered):
    """The longest prompt and its new tokens fit once with a draft model; short ones share its
    place."""
    rows = (len(longest(pair)) + 10) * sum(model.row_bytes for model in pair.packed.values())
    study = batch(
        "speculative",
        sizes=(1, 5),
        schemes=("unpadded", "dynamic"),
        cache_mb=math.ceil(rows / 1e4) / 100,
    )
    found = results(session.run(pair, study, meter=unmetered))
    assert {r.agreement.differing for r in found if r.agreement} == {0}
    at_once = {(r.decoder, r.batch_size, r.scheme): r.metrics["at_once"] for r in found}
    assert at_once["speculative", 1, "unpadded"] == 1
    assert 1 <= at_once["speculative", 5, "dynamic"] < at_once["greedy", 5, "dynamic"] <= 5
    assert all(0 < r.metrics["peak_cache_bytes"] <= study.max_cache_bytes for r in found)
    # those that wait read later
    assert {r.batch_size for r in found if r.metrics["decode_seconds"] is not None} == {1}


def longest(pair) -> list[int]:
    """The tokens of the longest prompt."""
    return max((pair.tokenizer(p.text).input_ids for p in FEW.prompts), key=len)


# ---- Energy


class RecordingGauge(NoGauge):
    def __init__(self):
        super().__init__("not measured: a test")
        object.__setattr__(self, "calls", [])

    def start(self):
        self.calls.append("start")

    def stop(self, begun, seconds):
        self.calls.append("stop")
        return Energy(3.0, "measured: GPU energy counter")


@pytest.mark.parametrize("kind", KINDS)
def test_energy_is_metered_for_each_job_alone(pair, kind):
    """Batches had no energy."""
    gauge = RecordingGauge()
    found = results(session.run(pair, make(kind, "lookup"), meter=Meter(gauge)))
    assert gauge.calls == ["start", "stop"] * 2
    assert {(r.energy.joules, r.metrics["joules"], r.metrics["energy_source"]) for r in found} == {
        (3.0, 3.0, "measured: GPU energy counter")
    }
    assert [[lap.energy.joules for lap in r.laps] for r in found] == [[3.0], [3.0]]


# ---- Stopping


def test_cancelling_a_comparison_ends_within_a_round_and_gives_the_run_so_far(
    pair, unmetered, every_round
):
    stop, at = threading.Event(), None
    study = comparison("greedy", "mtad", "dsbd", max_new_tokens=200)
    for event in session.run(pair, study, meter=unmetered, cancel=stop):
        if (
            isinstance(event, Progress)
            and event.at.decoder == "mtad"
            and event.done >= 9
            and at is None
        ):
            stop.set()
            at = len(event.rounds)
        assert not (isinstance(event, Started) and event.at.decoder == "dsbd")
    run = event.run
    assert run.cancelled
    assert [(r.decoder, r.alone.finished) for r in run.results] == [
        ("greedy", "budget"),
        ("mtad", "cancelled"),
    ]
    assert len(run.results[1].alone.rounds) - at <= 1


def test_cancelling_a_batch_keeps_what_is_finished_and_no_half_measurement(
    pair, unmetered, every_round
):
    stop = threading.Event()
    for event in session.run(pair, batch("lookup"), meter=unmetered, cancel=stop):
        if isinstance(event, Progress) and event.at.job == 2:
            stop.set()
    assert isinstance(event, Ended)
    assert event.run.cancelled
    assert len(event.run.results) == 2


def test_a_batch_stopped_between_two_of_its_batches_is_no_whole_measurement(
    pair, unmetered, every_round
):
    """A stop in the last round of one batch left out the next ones.

    The job was kept as if it had decoded all prompts."""
    for stop_at in range(1, 12):
        stop = threading.Event()
        rounds = 0
        study = batch(sizes=(1,), prompts=FEW.first(3), tokens=3, own={"decoders": ["greedy"]})
        for event in session.run(pair, study, meter=unmetered, cancel=stop):
            rounds += isinstance(event, Progress)
            if rounds == stop_at:
                stop.set()
        whole = [len(r.samples) for r in event.run.results]
        assert whole in ([], [3])
        assert event.run.cancelled == (whole == [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_before_the_start_runs_nothing(pair, unmetered, kind):
    *events, ended = session.run(pair, make(kind, "lookup"), meter=unmetered, cancel=lambda: True)
    assert events == []
    assert (ended.run.results, ended.run.cancelled) == ([], True)


@pytest.mark.parametrize("kind", KINDS)
def test_closing_frees_the_device_at_any_event(pair, every_round, rows_out, kind):
    seen_held = 0
    for at in range(8):
        gauge = RecordingGauge()
        with closing(session.run(pair, make(kind, "speculative"), meter=Meter(gauge))) as events:
            for _ in range(at + 1):
                next(events)
            seen_held = max(seen_held, rows_out())
        assert rows_out() == 0
        assert gauge.calls.count("start") == gauge.calls.count("stop")
        assert list(events) == []
    assert seen_held > 0


@pytest.mark.parametrize("kind", KINDS)
def test_cancelling_frees_the_device_after_any_round(pair, unmetered, every_round, rows_out, kind):
    for rounds in (1, 3, 6):
        stop = threading.Event()
        seen = 0
        for event in session.run(pair, make(kind, "speculative"), meter=unmetered, cancel=stop):
            seen += isinstance(event, Progress)
            if seen == rounds:
                stop.set()
        assert event.run.cancelled
        assert rows_out() == 0


# ---- What fails


def assert_contained(found, name, message, broke):
    """The decoder's jobs have the error, in one line, and all others are whole."""
    for result in found:
        if result.decoder == name and broke:
            assert result.error.startswith(message)
            assert "\n" not in result.error
        else:
            assert result.errors == []
            assert result.metrics["tokens_per_second"] > 0
            assert all(s.finished == "budget" for s in result.samples)


@pytest.mark.parametrize(
    ("kind", "failure", "when"),
    pairwise(KINDS, list(FAILURES), [(True, 0), (True, 2), (False, 0), (False, 1), (False, 6)]),
)
def test_a_decoder_that_fails_at_any_step_has_its_error_and_the_others_finish(
    pair, unmetered, monkeypatch, rows_out, tmp_path, kind, failure, when
):
    """In a batch, memory that ran out left the Run button hidden until a reload."""
    warm_up, after = when
    break_decoder(monkeypatch, "lookup", failure, after=after, warm_up=warm_up)
    study = make(kind, "lookup", "speculative")
    *_, ended = session.run(pair, study, meter=unmetered)
    found = ended.run.results
    assert [r.decoder for r in found] == [j.method.name for j in study.jobs()]
    assert_contained(found, "lookup", FAILURES[failure], broke=True)
    assert not ended.run.cancelled
    assert rows_out() == 0
    store = RunStore(tmp_path / "runs.sqlite")  # and what came of it can be kept and read
    store.save(ended.run)
    assert store.get(ended.run.id) == ended.run


class Failing:
    """A function that fails when it is called for the nth time."""

    def __init__(self, nth: int, failure):
        self.left, self.failure = nth, failure

    def __call__(self, *_):
        self.left -= 1
        if self.left == 0:
            raise self.failure()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("failure", FAILURES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_device_that_fails_when_waited_for_fails_that_job_alone(
    pair, rows_out, kind, failure, nth
):
    """A CUDA device reports its errors late, where the meter waits for it.

    That is before and after the work."""
    meter = Meter(NoGauge("not measured: a test"), Failing(nth, failure))
    found = results(session.run(pair, make(kind, "lookup"), meter=meter))
    failed = [i for i, r in enumerate(found) if r.errors]
    assert (len(found), failed) == (2, [(nth - 1) // 2])
    assert found[failed[0]].error.startswith(FAILURES[failure])
    assert rows_out() == 0


class BrokenGauge(NoGauge):
    def __init__(self, step: str):
        super().__init__("not measured: a test")
        object.__setattr__(self, "step", step)

    def start(self):
        if self.step == "start":
            raise OSError("the counter is gone")

    def stop(self, begun, seconds):
        if self.step == "stop":
            raise out_of_memory()
        return super().stop(begun, seconds)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", ["start", "stop"])
def test_a_gauge_that_fails_costs_the_energy_and_nothing_else(pair, kind, step):
    found = results(session.run(pair, make(kind, "lookup"), meter=Meter(BrokenGauge(step))))
    assert_contained(found, "lookup", "", broke=False)
    assert all(
        r.energy.joules is None and r.energy.source.startswith("not measured") for r in found
    )


def test_a_text_that_fails_to_be_decoded_fails_its_job_alone(pair, unmetered, monkeypatch):
    monkeypatch.setattr(pair.tokenizer, "decode", lambda *a, **o: (_ for _ in ()).throw(broken()))
    found = results(session.run(pair, comparison("greedy", "mtad"), meter=unmetered))
    assert [r.error for r in found] == ["RuntimeError: device-side assert"] * 2


def test_the_input_is_refused_at_the_call(pair, unmetered):
    with pytest.raises(InputError, match="exceed the 512 positions"):
        session.run(pair, comparison("greedy", prompt="abc" * 200), meter=unmetered)
    long = PromptSet("few", (*FEW.prompts, Prompt("a" * 512, "few, line 9")))
    with pytest.raises(InputError, match="few, line 9"):
        session.run(pair, batch("lookup", prompts=long), meter=unmetered)


def test_perplexity_is_that_of_a_plain_forward_pass(pair, unmetered):
    (result,) = results(session.run(pair, comparison("mtad"), meter=unmetered))
    tokens = [t.id for t in result.alone.tokens]
    ids = [*pair.tokenizer("abc").input_ids, *tokens]
    with torch.inference_mode():
        log_p = pair.target(torch.tensor([ids])).logits[0].log_softmax(-1)
    places = range(len(ids) - len(tokens) - 1, len(ids) - 1)
    nats = sum(log_p[i, ids[i + 1]].item() for i in places) / len(tokens)
    assert result.metrics["perplexity"] == pytest.approx(math.exp(-nats), rel=1e-4)


def token(id, *probabilities, shift=0.0):
    """A token whose place lists ids 0, 1, 2, ... with these probabilities, moved by `shift` nats of
    rounding."""
    likeliest = [Alternative(i, "", p * math.exp(shift)) for i, p in enumerate(probabilities)]
    return TokenRecord(id, 0, "", "sampled", 0, None, None, None, None, None, likeliest)


def result(*texts, decoder="greedy", **changes) -> Result:
    samples = [
        Sample(i, 1, tokens=list(tokens), finished="budget") for i, tokens in enumerate(texts)
    ]
    return replace(
        Result(decoder, 0, 0, {}, Energy(None, "not measured: a test"), samples), **changes
    )


def outputs(found: Result) -> dict[int, list[int]]:
    return {s.prompt: [t.id for t in s.tokens] for s in found.samples}


def check(greedy, other, dtype="float32"):
    a, b = result(greedy), result(other)
    return agreement("greedy", a, outputs(a), b, outputs(b), dtype)


def test_a_gap_within_the_rounding_measured_before_it_is_a_near_tie():
    greedy = [token(0, 0.6, 0.4), token(0, 0.5005, 0.4995)]
    other = [token(0, 0.6, 0.4, shift=0.002), token(1, 0.4995, 0.5005)]
    found = check(greedy, other, "bfloat16")
    assert (found.differing, found.differs_at, found.near_tie, found.dtype) == (
        1,
        1,
        True,
        "bfloat16",
    )
    assert found.gap == pytest.approx(math.log(0.5005 / 0.4995))


def test_a_gap_far_above_the_rounding_is_a_difference():
    greedy = [token(0, 0.6, 0.4), token(0, 0.9, 0.1)]
    other = [token(0, 0.6, 0.4, shift=1e-6), token(1, 0.9, 0.1)]
    found = check(greedy, other)
    assert not found.near_tie
    assert found.gap == pytest.approx(math.log(9))
    assert found.noise == pytest.approx(1e-6, rel=1e-3)


def test_a_token_that_is_not_among_the_likeliest_has_no_gap_and_is_no_tie():
    found = check([token(0, 0.6, 0.4)], [token(9, 0.6, 0.4)])
    assert (found.differs_at, found.gap, found.near_tie) == (0, None, False)


def test_a_text_that_stops_early_differs_where_it_stops():
    tokens = [token(0, 0.6, 0.4)] * 3
    found = check(tokens, tokens[:2])
    assert (found.differing, found.differs_at, found.gap, found.near_tie) == (1, 2, None, False)


def job(name: str, seed: int = 0) -> Job:
    return Job(catalog[name](), 0, seed)


GOOD, OTHER = [token(0, 0.6, 0.4)], [token(1, 0.6, 0.4)]


def compare(references: References, of: Job, tokens, **changes):
    found = result(tokens, decoder=of.method.name, **changes)
    return references.compare(of, found, outputs(found))


def test_without_greedy_an_exact_decoder_is_no_reference_for_the_others():
    references = References(0.0, "float32")
    assert compare(references, job("speculative"), GOOD) is None
    assert compare(references, job("spectr"), OTHER) is None


def test_what_failed_or_was_stopped_is_neither_compared_nor_a_reference():
    references = References(0.0, "float32")
    stopped = {"samples": [Sample(0, 1, tokens=OTHER, finished="cancelled")]}
    assert compare(references, job("greedy"), OTHER, error="broken") is None
    assert compare(references, job("greedy"), OTHER, **stopped) is None
    # the first that is whole is the reference
    assert compare(references, job("greedy"), GOOD) is None
    assert compare(references, job("speculative"), GOOD).differing == 0
    assert compare(references, job("speculative"), OTHER, error="broken") is None
