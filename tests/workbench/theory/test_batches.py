"""Padding of a batch run, against hand-made acceptance lengths and the formula."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoders import theory
from tests.workbench.made import made_batch
from workbench.runs.record import Run, Sample
from workbench.theory.estimates import MeasuredBatch, batches, measured

GAINED = [[4, 1, 2], [1, 1, 3, 2], [2, 2], [1, 4]]


def gaining(gained: list[list[int]]) -> Run:
    """A run whose lookup gained this per prompt and round, alone and in batches of four."""
    run = made_batch()
    alone = replace(run.results[1], samples=[Sample(i, 3, gained=g) for i, g in enumerate(gained)])
    return replace(run, results=[run.results[0], alone, *run.results[2:]])


@pytest.fixture
def found() -> MeasuredBatch:
    (one,) = batches(gaining(GAINED))
    return one


def test_means_and_their_spread(found):
    assert found.means == [7 / 3, 7 / 4, 2, 5 / 2]
    assert found.mean == pytest.approx(sum(found.means) / 4)
    assert found.deviation == pytest.approx(
        math.sqrt(sum((m - found.mean) ** 2 for m in found.means) / 3)
    )


def test_accuracy_counts_right_and_wrong_tokens(found):
    """The longest, 4, is the cap: it has three right tokens and none wrong.

    Each shorter one ends with a wrong token."""
    assert found.cap == 4
    right, wrong = (
        sum(g - 1 for gains in GAINED for g in gains),
        sum(g < 4 for gains in GAINED for g in gains),
    )
    assert found.p == right / (right + wrong)


def test_padding_of_rounds_in_lockstep(found):
    """Rounds of a batch of four: 4 1 2 1, then 1 1 2 4, then 2 3 (two have ended), then 2."""
    padding = found.padding(4)
    assert padding.longest == pytest.approx((4 + 4 + 3 + 2) / 4)
    assert padding.pads == pytest.approx(((4 - 2) + (4 - 2) + (3 - 2.5) + 0) / 4)
    each = [0, 3 / 4, 2 / 4, 3 / 4, 3 / 4, 3 / 4, 2 / 4, 0, 1 / 3, 0, 0]
    assert padding.ratio == pytest.approx(sum(each) / len(each))
    assert found.longest(4, 8) == [0, 1 / 4, 1 / 4, 2 / 4, 0, 0, 0, 0]
    assert found.longest(4, 3) == [0, 1 / 4, 3 / 4]  # what is longer sits on the cap


def test_a_batch_alone_needs_no_padding_and_an_unmeasured_size_has_none(found):
    assert found.padding(1).ratio == found.padding(1).pads == 0
    assert found.padding(8) is None
    assert found.longest(8, 8) is None


def test_the_ratio_of_the_vanilla_scheme_is_the_measured_one(found):
    assert found.ratios == {4: 0.25}


@settings(max_examples=20)
@given(st.floats(0.2, 0.9), st.integers(0, 2**32 - 1))
def test_requests_that_are_alike_pad_as_the_formula_says(p, seed):
    """Acceptance lengths drawn from the formula's own law give back its accuracy and its
    padding."""
    cap, drawn = 6, np.random.default_rng(seed).geometric(1 - p, (4, 2000)).clip(max=6)
    (found,) = batches(gaining(drawn.tolist()))
    expected = theory.expected_padding(p, 4, cap)
    assert found.p == pytest.approx(p, abs=0.03)
    assert found.padding(4).longest == pytest.approx(expected.longest, abs=0.15)
    assert found.padding(4).ratio == pytest.approx(expected.ratio, abs=0.03)


def test_what_the_acceptance_lengths_give_is_what_the_engine_padded(batch_run):
    """The vanilla scheme's own padding ratio, counted by the engine, against that of its acceptance
    lengths."""
    speculative = next(m for m in batches(batch_run) if m.decoder == "Speculative")
    assert speculative.padding(2).ratio == pytest.approx(speculative.ratios[2], abs=0.06)


def test_a_comparison_has_no_batches_and_a_batch_no_rounds(run, batch_run):
    assert measured(run).batches == ()
    found = measured(batch_run)
    assert (found.speculative, found.dsbd, found.mtad) == (None, None, None)
    assert [m.decoder for m in found.batches] == ["Prompt lookup", "Speculative"]


def test_a_run_without_acceptance_lengths_shows_none():
    run = made_batch()
    assert batches(replace(run, results=run.results[2:])) == ()
    assert batches(Run.from_json(json.dumps(run.to_json()))) == batches(run)
