"""Draws counted against a law, without a model: true laws pass, and mistakes are found."""

import math
import random
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders.methods.speculative import Speculative
from decoders.sampling import SeededSource
from decoders.testing import Situation, decode, distance, drawn, mutant
from decoders.testing.laws import ancestral
from decoders.warp import Warping
from workbench.runs.cells import LEAST, Tokens, cells, of_exact_samplers, variation
from workbench.runs.verdicts import LEVEL, p_value

EXPERIMENTS, DRAWS = 200, 100


def prefixes(situation: Situation, warping: Warping | None = None) -> dict[Tokens, float]:
    """The law of every prefix of up to three tokens of the toy target."""
    law: dict[Tokens, float] = {}
    for text, p in ancestral(situation, warping or situation.warping).items():
        for depth in range(1, min(3, len(text)) + 1):
            law[text[:depth]] = law.get(text[:depth], 0.0) + p
    return law


@pytest.mark.parametrize(
    "situation",
    [
        drawn(6, 1),
        drawn(30, 2),
        drawn(6, 3, warping=Warping(0.7, 0, 0.9)),
        drawn(5, 4, end=frozenset({0})),
    ],
    ids=["six tokens", "thirty tokens", "warped", "with an end"],
)
def test_draws_of_a_true_law_are_as_far_off_as_exact_samplers(situation):
    """200 experiments of 100 draws with fixed seeds: each is nearer than its share of exact
    samplers, and none is called unlike."""
    texts = ancestral(situation, situation.warping)
    names, bounds = list(texts), list(accumulate(texts.values()))
    found = cells(prefixes(situation))
    exact, nearer = of_exact_samplers(DRAWS, found.chances), []
    for seed in range(EXPERIMENTS):
        drawn = random.Random(seed).choices(names, cum_weights=bounds, k=DRAWS)
        counts = found.counts(drawn)
        nearer.append((exact < variation(counts, found.chances) - 1e-9).mean())
        assert p_value(counts, found.chances) > LEVEL
    for share in (0.5, 0.9, 0.98):
        deviation = math.sqrt(share * (1 - share) / EXPERIMENTS)
        assert sum(each >= share for each in nearer) / EXPERIMENTS <= 1 - share + 3 * deviation


def test_a_decoder_with_a_mistake_is_found_and_the_right_one_is_not():
    """Speculative sampling that keeps every draft token is off by more than 0.1, and 1,000 draws
    show it; the decoder itself passes."""
    situation = drawn(4, 5)
    wrong = mutant(
        Speculative, ("return Law.TARGET if self.lenience == 1 else None", "return Law.TARGET")
    )(draft_length=2, lenience=0.05)
    right = Speculative(draft_length=2)
    assert distance(wrong, situation) >= 0.1
    found = cells(prefixes(situation))
    values = {}
    for name, method in (("wrong", wrong), ("right", right)):
        texts = (decode(method, situation, SeededSource(seed)).output for seed in range(1000))
        values[name] = p_value(found.counts(texts), found.chances)
    assert values["wrong"] < LEVEL
    assert values["right"] > 0.01


laws = st.lists(st.floats(0.001, 1.0), min_size=1, max_size=12).map(
    lambda weights: {(i,): w / sum(weights) for i, w in enumerate(weights)}
)


@given(laws)
def test_cells_part_all_texts_and_are_large_enough(law):
    found = cells(law)
    assert abs(sum(found.chances) - 1) < 1e-9
    *possible, outside = found.chances
    assert outside == 0
    assert len(possible) == 1 or min(possible) >= LEAST - 1e-9
    counts = found.counts([(), (0,), (99,), (0, 5, 7)])
    assert sum(counts) == 4


def test_longer_prefixes_have_cells_and_what_is_beside_them_has_one():
    law = {(1,): 0.5, (1, 2): 0.3, (1, 2, 3): 0.2, (4,): 0.3, (5,): 0.01}
    found = cells(law)
    assert sorted(found.chances) == pytest.approx(
        sorted([0, 0.2, 0.1 + 0.01, 0.2, 0.3, 0.2 - 0.01])
    )
    texts = [(1, 2, 3), (1, 2, 9), (1, 7), (4, 4), (5,), (8, 8), (1, 2, 3, 4, 5)]
    assert sorted(found.counts(texts)) == [0, 1, 1, 1, 2, 2]


def test_what_is_rare_shares_a_cell():
    """All texts rarer than five draws were one cell: of a flat law nothing was compared."""
    found = cells({(i,): 0.01 for i in range(100)})
    assert found.chances == pytest.approx([LEAST] * 20 + [0])
    assert found.counts([(i,) for i in range(100)]) == [5] * 20 + [0]


def test_a_law_from_a_broken_file_gives_cells_all_the_same():
    assert cells({(1, 2): 0.9, (): 3.0, (7,): 0.6, (8,): 0.7}).counts([(7,), (9,)])
    assert sum(cells({(7,): 1.0, (8,): 1.0}).chances) == pytest.approx(1.0)
    assert cells({}).chances == (1.0, 0.0)


def test_exact_samplers_are_as_far_off_as_theory_says():
    """For n draws from two equal cells the mean total variation is about 1 / sqrt(2 pi n)."""
    found = of_exact_samplers(100, (0.5, 0.5))
    assert found.mean() == pytest.approx(1 / math.sqrt(200 * math.pi), rel=0.05)
    assert variation([60, 40], (0.5, 0.5)) == pytest.approx(0.1)


def test_a_prefix_of_probability_0_has_a_cell_of_its_own_where_one_draw_is_proof():
    """Texts of probability 0 were pooled with the smallest cell, where one of them says nothing."""
    law = {(1,): 0.5, (2,): 0.5, (3,): 0.0, (1, 4): 0.0}
    found = cells(law)
    assert found.never((1, 4, 5)) == (1, 4)
    assert found.never((1, 5)) == ()
    counts = found.counts([(1, 2), (2, 4), (3,), (1, 4, 5)])
    assert counts == [1, 1, 2]
    assert p_value(counts, found.chances) == 0
    assert p_value([1, 1, 0], found.chances) == 1
    assert p_value([50, 1], [1.0, 0.0]) == 0
    assert p_value([50, 0], [1.0, 0.0]) is None


def test_what_is_not_known_to_be_impossible_is_no_proof():
    """The law lists likely prefixes alone: what they leave may be too rare to be listed."""
    found = cells({(1,): 0.5, (2,): 0.5})
    assert p_value(found.counts([(3,)]), found.chances) > LEVEL
    assert p_value(found.counts([(3,)] * 100), found.chances) < 1e-6
