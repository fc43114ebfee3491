"""A session times every decoder several times: in cycles, the first one seen, the others quiet."""

import gc
import threading

import pytest

import decoders
from workbench.kinds.comparison import Comparison
from workbench.measuring import session
from workbench.measuring.meter import BELOW_RESOLUTION, Meter, Watch
from workbench.measuring.session import MOST_MORE, extension
from workbench.models.keeper import Threads
from workbench.runs.events import Ended, Finished, Progress
from workbench.runs.record import Energy, Lap, Load, Result, Sample
from workbench.studies.settings import Settings


def study(**settings) -> Comparison:
    asked = {"decoders": ["greedy", "speculative"], "max_new_tokens": 12, "timings": 3}
    return Comparison("Once", Settings.from_json({**asked, "temperature": 0.0, **settings}))


def run(pair, meter, asked: Comparison, **options):
    return list(session.run(pair, asked, meter=meter, **{"watch": Watch(), **options}))


class Uncounted(Watch):
    """A machine without counters."""

    def load(self, *_):
        return Load()


@pytest.fixture
def patient(monkeypatch) -> dict:
    """Options of a run whose timings are never enough, whatever else runs here."""
    monkeypatch.setattr(session, "LEAST_SECONDS", 1e9)
    return {"watch": Uncounted(), "patience": 1000.0}


@pytest.fixture
def fails(monkeypatch):
    """Lets the decodings fail whose decoder and number are given."""

    def let(which) -> list[str]:
        calls, stream = [], decoders.stream

        def failing(pair, prompts, method, **options):
            calls.append(method.name)
            if which(method.name, calls.count(method.name)):
                raise RuntimeError("boom")
            return stream(pair, prompts, method, **options)

        monkeypatch.setattr(decoders, "stream", failing)
        return calls

    return let


def test_each_result_has_its_laps_and_estimates_from_them(pair, unmetered):
    *events, ended = run(pair, unmetered, study())
    assert isinstance(ended, Ended)
    for result in ended.run.results:
        assert len(result.laps) == 3
        assert [lap.drawn for lap in result.laps[1:]] == [False, False]
        assert all(lap.same_rounds and lap.same_tokens for lap in result.laps)
        assert all(len(lap.rounds) == len(result.alone.rounds) for lap in result.laps)
        assert result.metrics["tokens_per_second"] == pytest.approx(12 / result.metrics["seconds"])
    assert sum(isinstance(e, Finished) for e in events) == 6
    assert not any(isinstance(e, Progress) and e.at.lap for e in events)  # later laps draw nothing
    first = [e.at.lap for e in events if isinstance(e, Finished)]
    assert first == [0, 0, 1, 1, 2, 2]  # figures appear at once, as timed once


def test_what_is_short_is_timed_more_often_in_one_extension(pair, unmetered, patient):
    """On fast passes, three timings of 0.1 s gave 1.28 to 2.21 times greedy for one comparison. On
    a busy machine they went on for 30 s, and the progress promised 15 and made 45."""
    *events, ended = run(pair, unmetered, study(), **patient)
    assert [len(r.laps) for r in ended.run.results] == [3 + MOST_MORE] * 2
    assert not ended.run.cancelled
    last = [e.at for e in events if isinstance(e, Finished)][-1]
    assert (last.lap + 1, last.laps) == (3 + MOST_MORE, 3 + MOST_MORE)
    *_, ended = run(pair, unmetered, study(timings=1), **patient)
    assert [len(r.laps) for r in ended.run.results] == [1, 1]  # who asks for one gets one
    assert not ended.run.cancelled
    *_, ended = run(pair, unmetered, study(), **{**patient, "patience": 1e-9})
    assert [len(r.laps) for r in ended.run.results] == [3, 3]


def test_a_decoder_that_failed_is_not_waited_for(pair, unmetered, patient, fails):
    fails(lambda name, _: name == "speculative")
    *_, ended = run(pair, unmetered, study(), **patient)
    greedy, other = ended.run.results
    assert (len(greedy.laps), len(other.laps) <= 1) == (3 + MOST_MORE, True)
    assert other.errors


@pytest.mark.parametrize(("seconds", "patience", "more"), [
    ([0.1, 0.1, 0.1], 6.0, 3),  # too short in all: as often again
    ([0.03, 0.03, 0.03], 6.0, 7),
    ([0.03, 0.03, 0.03], 0.1, 3),  # as many as there is time for
    ([0.2, 0.2, 0.2], 6.0, 0),
    ([0.2, 0.3, 0.4], 6.0, 3),  # too uneven
    ([2.0, 3.0, 4.0], 1.0, 0),
])  # fmt: skip
def test_more_laps_are_taken_where_they_help(seconds, patience, more):
    assert extension([timed(seconds)], patience) == more
    assert extension([], patience) == 0


def test_who_times_is_ended_once_all_texts_are_there_and_is_not_called_stopped(pair, unmetered):
    """A run is whole after its first pass over the decoders; the rest is timing."""
    stop = threading.Event()
    for event in session.run(pair, study(), meter=unmetered, watch=Watch(), cancel=stop):
        if isinstance(event, Finished) and event.at.last_text:
            stop.set()
    assert not event.run.cancelled
    assert [len(r.laps) for r in event.run.results] == [1, 1]


def timed(seconds: list[float], **load) -> Result:
    none = Energy(None, "not measured: a test")
    laps = [Lap(each, [each], none, load=Load(**load)) for each in seconds]
    return Result("greedy", 0, 0, {}, none, [Sample(0, 1)], laps)


def test_a_decoder_that_fails_in_its_second_lap_keeps_its_first(pair, unmetered, fails):
    """Earlier timings count, and the result says that a later one failed."""
    calls = fails(lambda name, number: (name, number) == ("speculative", 2))
    *_, ended = run(pair, unmetered, study())
    greedy, other = ended.run.results
    assert len(greedy.laps) == 3
    assert (len(other.laps), other.error) == (1, None)
    (remark,) = other.remarks
    assert "Timing 2 failed" in remark
    assert "boom" in remark
    assert calls.count("speculative") == 2  # and it is not tried a third time


def test_other_tokens_of_the_same_seed_are_a_fault(pair, unmetered, monkeypatch):
    stream, calls = decoders.stream, []

    def other_seed(pair, prompts, method, **options):
        calls.append(method.name)
        seed = [s + len(calls) for s in options["seed"]]
        return stream(pair, prompts, method, **{**options, "seed": seed})

    monkeypatch.setattr(decoders, "stream", other_seed)
    *_, ended = run(pair, unmetered, study(temperature=1.0, decoders=["multinomial"]))
    (result,) = ended.run.results
    assert not all(lap.same_tokens for lap in result.laps)


def test_a_decoder_that_watches_the_clock_may_draw_other_tokens(pair, unmetered):
    asked = study(temperature=1.0, decoders=["speculative"], speculative={"draft_length": "auto"})
    *_, ended = run(pair, unmetered, asked)
    assert all(lap.same_tokens for lap in ended.run.results[0].laps)


def test_the_run_says_its_threads(pair, unmetered):
    *_, ended = run(pair, unmetered, study(timings=1), threads=Threads(1, "a test"))
    where = ended.run.environment
    assert (where["threads"], where["threads_reason"]) == (1, "a test")


class TooCoarse:
    """A gauge that resolves nothing."""

    def start(self):
        return None

    def stop(self, begun, seconds):
        return Energy(None, BELOW_RESOLUTION)


def test_energy_says_that_the_window_was_too_short(pair):
    *_, ended = run(pair, Meter(TooCoarse()), study(decoders=["greedy"], timings=2))
    assert ended.run.results[0].energy == Energy(None, BELOW_RESOLUTION)


def test_the_collector_looks_at_little_while_a_study_runs_and_at_all_afterwards(pair, unmetered):
    """A full collection over all that the page holds once took as long as a lap's passes."""
    gc.unfreeze()  # a page of an earlier test may still be timing its run
    events = session.run(pair, study(timings=1), meter=unmetered, watch=Watch())
    next(events)
    assert gc.get_freeze_count() > 0
    events.close()
    assert gc.get_freeze_count() == 0
