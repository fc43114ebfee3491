"""A session runs the jobs of a study: events in order, and a result for each job."""

import math
import threading
from contextlib import closing
from dataclasses import replace

import pytest

import decoders
from decoders import catalog
from tests.pairwise import pairwise, part
from tests.workbench.measuring.conftest import (
    FAILURES,
    FEW,
    batch,
    break_decoder,
    comparison,
    make,
    results,
)
from workbench.measuring import session
from workbench.measuring.meter import Gauge, Meter
from workbench.measuring.session import References, agreement
from workbench.runs.events import Progress, Started
from workbench.runs.record import Alternative, Energy, Result, Sample, TokenRecord
from workbench.runs.store import RunStore
from workbench.studies.study import Job

KINDS = ("comparison", "batch")


def test_progress_shows_what_stands_and_is_a_snapshot(pair, unmetered, every_round):
    events = list(session.run(pair, comparison("beam_search", "speculative"), meter=unmetered))
    for name, provisional in (("beam_search", True), ("speculative", False)):
        updates = [e for e in events if isinstance(e, Progress) and e.at.decoder == name]
        assert updates[0].provisional is provisional
        assert all(0 < e.done == len(e.tokens) <= e.budget == 16 for e in updates)
        assert len(updates[0].rounds) == 1  # it did not grow with the decoder
        result = next(r for r in results(events) if r.decoder == name)
        assert [t.id for t in updates[-1].tokens] == [t.id for t in result.alone.tokens]


# ---- The tokens that must be the same


def test_at_temperature_0_exact_decoders_are_compared_with_greedy(pair, unmetered):
    names = ("greedy", "speculative", "dsbd", "mtad", "beam_search")
    cold = results(session.run(pair, comparison(*names, temperature=0.0), meter=unmetered))
    found = {r.decoder: r.agreement for r in cold}
    for each in (found["speculative"], found["dsbd"]):
        assert (each.reference, each.compared, each.differing) == ("greedy", 1, 0)
    assert found["greedy"] is found["mtad"] is found["beam_search"] is None
    warm = results(session.run(pair, comparison("greedy", "speculative"), meter=unmetered))
    assert [r.agreement for r in warm] == [None, None]


def test_every_scheme_gives_greedys_tokens_at_temperature_0(pair, unmetered):
    first, *others = results(session.run(pair, batch("lookup", "speculative"), meter=unmetered))
    assert first.agreement is None
    for each in (r.agreement for r in others):
        assert (each.reference, each.compared, each.differing) == ("greedy", 5, 0)
    assert not any(r.errors for r in (first, *others))
    assert all(r.metrics["at_once"] == r.batch_size for r in others)


def test_another_output_is_counted_if_the_law_is_another(pair, unmetered, monkeypatch):
    """`differing` really compares: a beam search that claims to be exact is found out."""
    honest = results(session.run(pair, batch("beam_search", sizes=(1,)), meter=unmetered))[-1]
    assert honest.agreement is None
    monkeypatch.setattr(decoders.catalog["beam_search"], "law", "target")
    liar = results(session.run(pair, batch("beam_search", sizes=(1,)), meter=unmetered))[-1]
    assert liar.agreement.reference == "greedy"
    assert liar.agreement.differing > 0


# ---- Energy


class RecordingGauge(Gauge):
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
    pair, unmetered, every_round, rows_out
):
    stop, at = threading.Event(), None
    study = comparison("greedy", "mtad", "dsbd", max_new_tokens=200)
    for event in session.run(pair, study, meter=unmetered, cancel=stop):
        drafts = isinstance(event, Progress) and event.at.decoder == "mtad"
        if at is None and drafts and event.done >= 9:
            stop.set()
            at = len(event.rounds)
        assert not (isinstance(event, Started) and event.at.decoder == "dsbd")
    run = event.run
    assert run.cancelled
    finished = [(r.decoder, r.alone.finished) for r in run.results]
    assert finished == [("greedy", "budget"), ("mtad", "cancelled")]
    assert len(run.results[1].alone.rounds) - at <= 1
    assert rows_out() == 0


def test_a_batch_stopped_between_two_of_its_batches_is_no_whole_measurement(
    pair, unmetered, every_round
):
    """A stop in the last round of one batch left out the next ones. The job was kept as if it had
    decoded all prompts."""
    for stop_at in range(1, 12):
        stop, rounds = threading.Event(), 0
        study = batch(sizes=(1,), prompts=FEW.first(3), tokens=3, own={"decoders": ["greedy"]})
        for event in session.run(pair, study, meter=unmetered, cancel=stop):
            rounds += isinstance(event, Progress)
            if rounds == stop_at:
                stop.set()
        whole = [len(r.samples) for r in event.run.results]
        assert whole in ([], [3])
        assert event.run.cancelled == (whole == [])


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


# ---- What fails


def assert_contained(found, name, message):
    """The decoder's jobs have the error, in one line, and all others are whole."""
    for result in found:
        if result.decoder == name:
            assert result.error.startswith(message)
            assert "\n" not in result.error
        else:
            assert result.errors == []
            assert result.metrics["tokens_per_second"] > 0
            assert all(s.finished == "budget" for s in result.samples)


@pytest.mark.parametrize(
    ("kind", "failure", "when"),
    part(
        pairwise(KINDS, list(FAILURES), [(True, 0), (True, 2), (False, 0), (False, 1), (False, 6)])
    ),
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
    assert_contained(found, "lookup", FAILURES[failure])
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


@pytest.mark.parametrize(("kind", "failure", "nth"), pairwise(KINDS, list(FAILURES), [1, 2, 3, 4]))
def test_a_device_that_fails_when_waited_for_fails_that_job_alone(
    pair, rows_out, kind, failure, nth
):
    """A CUDA device reports its errors late, where the meter waits for it. That is before and after
    the work."""
    meter = Meter(Gauge("not measured: a test"), Failing(nth, failure))
    found = results(session.run(pair, make(kind, "lookup"), meter=meter))
    failed = [i for i, r in enumerate(found) if r.errors]
    assert (len(found), failed) == (2, [(nth - 1) // 2])
    assert found[failed[0]].error.startswith(FAILURES[failure])
    assert rows_out() == 0


def token(id, *probabilities, shift=0.0):
    """A token whose place lists ids 0, 1, 2, ... with these probabilities, moved by `shift` nats of
    rounding."""
    likeliest = [Alternative(i, "", p * math.exp(shift)) for i, p in enumerate(probabilities)]
    return TokenRecord(id, 0, "", "sampled", 0, None, None, None, None, None, likeliest)


def result(*texts, decoder="greedy", **changes) -> Result:
    samples = [Sample(i, 1, tokens=list(text), finished="budget") for i, text in enumerate(texts)]
    made = Result(decoder, 0, 0, {}, Energy(None, "not measured: a test"), samples)
    return replace(made, **changes)


def outputs(found: Result) -> dict[int, list[int]]:
    return {s.prompt: [t.id for t in s.tokens] for s in found.samples}


def check(greedy, other, dtype="float32"):
    a, b = result(greedy), result(other)
    return agreement("greedy", a, outputs(a), b, outputs(b), dtype)


@pytest.mark.parametrize(
    ("p", "noise", "dtype", "tie"),
    [(0.5005, 0.002, "bfloat16", True), (0.9, 1e-6, "float32", False)],
)
def test_a_gap_within_the_rounding_measured_before_it_is_a_near_tie(p, noise, dtype, tie):
    greedy = [token(0, 0.6, 0.4), token(0, p, 1 - p)]
    other = [token(0, 0.6, 0.4, shift=noise), token(1, 1 - p, p)]
    found = check(greedy, other, dtype)
    assert (found.differing, found.differs_at, found.near_tie) == (1, 1, tie)
    assert found.gap == pytest.approx(math.log(p / (1 - p)))
    assert found.noise >= 0.99 * noise


def test_a_text_that_stops_early_or_takes_an_unlikely_token_differs_there():
    tokens = [token(0, 0.6, 0.4)] * 3
    for other, place in ((tokens[:2], 2), ([token(9, 0.6, 0.4)], 0)):
        found = check(tokens, other)
        assert (found.differs_at, found.gap, found.near_tie) == (place, None, False)


def job(name: str, seed: int = 0) -> Job:
    return Job(catalog[name](), 0, seed)


GOOD, OTHER = [token(0, 0.6, 0.4)], [token(1, 0.6, 0.4)]


def compare(references: References, of: Job, tokens, **changes):
    found = result(tokens, decoder=of.method.name, **changes)
    return references.compare(of, found, outputs(found))


def test_what_failed_or_was_stopped_is_neither_compared_nor_a_reference():
    references = References(0.0, "float32")
    stopped = {"samples": [Sample(0, 1, tokens=OTHER, finished="cancelled")]}
    assert compare(references, job("greedy"), OTHER, error="broken") is None
    assert compare(references, job("greedy"), OTHER, **stopped) is None
    # the first that is whole is the reference
    assert compare(references, job("greedy"), GOOD) is None
    assert compare(references, job("speculative"), GOOD).differing == 0
    assert compare(references, job("speculative"), OTHER, error="broken") is None
