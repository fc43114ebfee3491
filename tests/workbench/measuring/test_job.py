"""One job on the clock: the library's tokens, and the seconds of the work."""

import time

import pytest

import decoders
from tests.models import build_pair, build_tokenizer
from tests.workbench.measuring.conftest import batch, comparison
from workbench.measuring.job import measure
from workbench.measuring.meter import Watch
from workbench.measuring.work import Update, Work, admit
from workbench.runs.record import Result
from workbench.studies.study import SCHEMES, Study


def work(pair, study: Study, meter) -> Work:
    return Work(pair, admit(pair, study), study.settings, meter, Watch(), lambda: False)


def run(measuring) -> tuple[list[Update], Result, dict]:
    """All updates of a job, its result and its outputs."""
    updates = []
    while True:
        try:
            updates.append(next(measuring))
        except StopIteration as done:
            return updates, done.value.result, done.value.outputs


@pytest.fixture(scope="module")
def measured(unmetered) -> list[Result]:
    """Two decoders that draft, in every scheme of batches of three. The pair is one whose drafts
    are accepted now and then."""
    pair = build_pair(tokenizer=build_tokenizer())
    study = batch("lookup", "speculative", sizes=(3,))
    place = work(pair, study, unmetered)
    return [run(measure(place, each))[1] for each in study.jobs()]


def test_each_scheme_pads_what_it_says(measured):
    for decoder in ("lookup", "speculative"):
        found = {r.scheme: r.metrics for r in measured if r.decoder == decoder}
        assert list(found) == list(SCHEMES)
        assert {s for s, m in found.items() if m["padded_rows"]} == {"vanilla", "unpadded_inputs"}
        told = {s for s, m in found.items() if m["padding_ratio"] is not None}
        assert told == {"vanilla", "unpadded_inputs"}
        assert not found["unpadded"]["padded_tokens"]
        assert not found["dynamic"]["padded_tokens"]
        assert len({m["fed_tokens"] for m in found.values()}) == 1
        assert [s for s, m in found.items() if m["decode_seconds"] is None] == ["dynamic"]
    lookup = {r.scheme: r.metrics for r in measured if r.decoder == "lookup"}
    assert {s for s, m in lookup.items() if m["padded_tokens"]} == {"vanilla", "unpadded_kv"}


def test_the_last_batch_is_filled_up_and_the_first_rounds_are_left_out_of_decoding(measured):
    assert {r.metrics["new_tokens"] for r in measured} == {60}
    greedy = measured[0]
    counts = {"decode_tokens": 54, "passes": 18, "fed_tokens": 54, "at_once": 3}
    assert {name: greedy.metrics[name] for name in counts} == counts
    assert 0 < greedy.metrics["decode_seconds"] < greedy.metrics["seconds"]
    assert greedy.laps[0].rounds == []  # rounds of several requests have no seconds of their own


@pytest.mark.parametrize(
    "study", [comparison("greedy", "dsbd"), batch("lookup", sizes=(3,))], ids=lambda each: each.kind
)
def test_speeds_leave_out_the_time_that_the_caller_draws(pair, unmetered, every_round, study):
    """A caller that holds every update for 20 ms."""
    place, draws, spent, began = work(pair, study, unmetered), 0, 0.0, time.perf_counter()
    for each in study.jobs()[:2]:
        measuring = measure(place, each)
        try:
            while True:
                next(measuring)
                draws += 1
                time.sleep(0.02)
        except StopIteration as done:
            result = done.value.result
            spent += result.metrics["seconds"]
            rounds = [r for s in result.samples for r in s.rounds]
            work_of_models = sum(r.draft_seconds + r.verify_seconds for r in rounds)
            assert work_of_models <= result.metrics["seconds"] + 1e-6
    wall = time.perf_counter() - began
    assert draws > 10
    assert spent <= wall - 0.02 * draws


def test_a_cold_decoder_is_warmed_up_untimed(pair, unmetered, monkeypatch):
    budgets, usual = [], decoders.catalog["greedy"].decode

    def decode(self, request):
        budgets.append(request.budget)
        return usual(self, request)

    monkeypatch.setattr(decoders.catalog["greedy"], "decode", decode)
    study = comparison("greedy")
    place = work(pair, study, unmetered)
    run(measure(place, study.jobs()[0], cold=True))
    run(measure(place, study.jobs()[0]))
    assert budgets == [8, 16, 16]
