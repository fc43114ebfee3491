"""Readings from a run, against its own counts and against hand-made rounds."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoders import catalog, theory
from workbench.runs.figures import BatchFigures, Row
from workbench.runs.record import (
    Load,
    RoundRecord,
    TrialRecord,
)
from workbench.show.quantities import padding_ratio
from workbench.theory import estimates
from workbench.theory.estimates import accuracy, batches, measured


def trial(node, parent, fate, p=None, q=None):
    return TrialRecord(node, parent, 0, "x", fate, p, q, None, None)


def round_(trials, nodes=(), **seconds):
    times = {"draft_seconds": 0.0, "verify_seconds": 0.0, "target_calls": 1, "draft_calls": 1}
    times |= seconds
    return RoundRecord(0, trials, 0, list(nodes), False, **times)


def with_rounds(run, decoder, rounds):
    """The first result of a decoder with other rounds in place of its own."""
    first = next(r for r in run.results if r.decoder == decoder)
    return replace(first, samples=[replace(first.alone, rounds=rounds)])


def test_speculative_counts_are_those_of_the_metrics(run):
    found = measured(run).speculative
    results = [r for r in run.results if r.decoder == "speculative"]
    counts = ("accepted", "tested", "drafted", "new_tokens")
    total = {name: sum(r.metrics[name] for r in results) for name in counts}
    rounds = sum(len(r.alone.rounds) for r in results)
    assert (found.accepted, found.tested) == (total["accepted"], total["tested"])
    assert found.gamma == pytest.approx(total["drafted"] / rounds)
    assert found.tokens == pytest.approx(total["new_tokens"] / rounds)
    speeds = {(r.decoder, r.repeat): r.metrics["tokens_per_second"] for r in run.results}
    ratios = [speeds["speculative", i] / speeds["greedy", i] for i in range(2)]
    assert found.speedup == pytest.approx(sum(ratios) / 2)


def test_the_cost_of_a_pass_leaves_out_the_first_round(run):
    """The first round also reads the prompt, so its seconds say nothing of a step."""
    fate = [trial(1, 0, "accepted")]
    slow = round_(fate, draft_seconds=9.0, verify_seconds=9.0)
    plain = with_rounds(run, "greedy", [slow, *[round_([], verify_seconds=2.0)] * 2])
    drafted = [slow, round_(fate, draft_seconds=0.8, verify_seconds=3.0, draft_calls=4)]
    own = with_rounds(run, "speculative", drafted)
    found = estimates.speculative(Row("speculative", "speculative", 1, "unpadded", [own], [plain]))
    assert found.c == pytest.approx(0.1)
    assert found.verify_cost == pytest.approx(1.5)


def test_without_greedy_there_is_no_cost_and_no_speedup(run):
    found = measured(replace(run, results=[r for r in run.results if r.decoder == "speculative"]))
    for name in ("c", "verify_cost", "speedup"):
        assert getattr(found.speculative, name) is None
    assert found.dsbd is None
    assert found.mtad is None


def test_timings_that_were_disturbed_are_not_sure(run):
    for load, sure in ((Load(), True), (Load(pressure=0.9), False)):
        laps = [[replace(lap, load=load) for lap in r.laps[:1]] for r in run.results]
        results = [replace(r, laps=own) for r, own in zip(run.results, laps, strict=True)]
        assert measured(replace(run, results=results)).speculative.sure is sure


def test_dsbd_layers_of_hand_made_rounds(run):
    """Round 1 passes layer 1 (two beams), refuses one draw of layer 2 and draws again; round 2
    passes its one layer and draws one more."""
    first = round_(
        [
            trial(1, 0, "accepted"), trial(2, 0, "accepted"),
            trial(3, 1, "accepted"), trial(4, 2, "rejected"), trial(5, 2, "corrected"),
            trial(6, 3, "discarded"),
        ]
    )  # fmt: skip
    second = round_([trial(7, 3, "accepted"), trial(8, 5, "rejected"), trial(9, 7, "bonus")])
    found = estimates.dsbd([with_rounds(run, "dsbd", [first, second])])
    assert (found.passed, found.verified) == (2, 3)
    assert found.gamma == 2.0  # layers 1-3 drafted, then one
    assert found.steps == 2.0  # layers 1-2 gained, then 3-4


def test_mtad_tells_one_sided_tokens_from_the_largest_gap(run):
    trials = [
        trial(1, 0, "accepted", 0.5, 0.25), trial(2, 1, "accepted", 0.1, 0.4),
        trial(3, 2, "rejected", 0.0, 0.3), trial(4, 2, "corrected", 0.9),
    ]  # fmt: skip
    result = with_rounds(run, "mtad", [round_(trials, [1, 2, 4])])
    found = estimates.mtad([result], catalog["mtad"](threshold=0.3))
    assert pytest.approx(math.log(4)) == found.U
    assert (found.compared, found.one_sided, found.gamma_bar, found.threshold) == (2, 1, 3.0, 0.3)


def test_accuracy_counts_right_and_wrong_tokens():
    """The longest, 4, has three right tokens and none wrong. Each shorter one ends with a wrong
    token."""
    gained = [4, 1, 2, 1, 1, 3, 2, 2, 2, 1, 4]
    right, wrong = sum(g - 1 for g in gained), sum(g < 4 for g in gained)
    assert accuracy(gained) == right / (right + wrong)
    assert accuracy([]) == 0


@settings(max_examples=20)
@given(st.floats(0.2, 0.9), st.integers(0, 2**32 - 1))
def test_lengths_of_the_formulas_own_law_give_back_its_accuracy_and_its_padding(p, seed):
    lengths = np.random.default_rng(seed).geometric(1 - p, (2000, 4)).clip(max=6)
    assert accuracy(lengths.flatten().tolist()) == pytest.approx(p, abs=0.03)
    padding = (1 - lengths / lengths.max(1, keepdims=True)).mean()
    assert padding == pytest.approx(theory.expected_padding(p, 4, 6), abs=0.03)


def test_the_padding_of_a_batch_is_what_the_engine_padded(batch_run):
    speculative = next(m for m in batches(batch_run) if m.decoder == "Speculative")
    assert speculative.padding[2] == padding_ratio(BatchFigures(batch_run), "speculative", 2) > 0
    assert 0 < speculative.p < 1
