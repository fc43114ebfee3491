"""The verdict on draws, in cells and simulated: true laws are never suspected, false ones found."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders.distribution import Warping
from decoders.methods.named import Speculative
from decoders.methods.rules import Tokenwise
from decoders.methods.sources import Chain
from decoders.request import SeededSource
from decoders.testing import Situation, decode, distance, drawn, mutant
from decoders.testing.situations import ancestral
from tests.pairwise import EVERYWHERE
from tests.pieces import Made
from tests.workbench.runs.simulated import directions, ever_unlike, found_share, laws
from workbench.runs.draws import (
    LEAST,
    LEVEL,
    Tokens,
    by_chance,
    cells,
    evidence,
    holm,
    p_value,
    variation,
)

CELLS = (2, 10, 20) if EVERYWHERE else (10,)


def chance(counts: tuple[int, ...], law: tuple[float, ...]) -> float:
    """The probability of these counts under the law."""
    ways = math.factorial(sum(counts)) / math.prod(math.factorial(n) for n in counts)
    return ways * math.prod(p**n for n, p in zip(counts, law, strict=True))


@given(st.lists(st.integers(0, 60), min_size=2, max_size=6), st.data())
def test_the_evidence_is_a_martingale_of_a_true_law(counts, data):
    """One more draw leaves it as it is on average, whatever was drawn before. So no rule of looking
    and adding draws wins against it."""
    weights = data.draw(st.lists(st.floats(0.05, 1), min_size=len(counts), max_size=len(counts)))
    law = [weight / sum(weights) for weight in weights]
    assert evidence([0] * len(law), law) == 0
    mean, before = 0.0, evidence(counts, law)
    for cell, p in enumerate(law):
        after = evidence([n + (i == cell) for i, n in enumerate(counts)], law)
        mean += p * math.exp(after - before)
    assert mean == pytest.approx(1)


@pytest.mark.parametrize("cells", CELLS)
def test_a_true_law_is_hardly_ever_called_unlike_however_often_one_looks(cells):
    """Five decoders of one law were all "Unlike the target (p = 0.019)" by one set of seeds. Of
    2,000 sets of seeds, each looked at after every hundred draws up to 4,000, at most two may say
    so (0.2 are expected at most)."""
    law = laws(cells, 1, 0)[0]
    assert sum(ever_unlike(law, 5, shared=True, seed=seed) for seed in range(2000)) <= 2


@pytest.mark.parametrize("cells", CELLS)
def test_a_law_that_is_off_by_a_tenth_is_found_with_the_draws_that_are_asked_for(cells):
    """In 99 of 100 cases, in any direction."""
    shares = [
        found_share(law, other, decoders=4, times=200, seed=i)
        for law in laws(cells, 2, 1)
        for i, other in enumerate(directions(law, 2))
    ]
    assert sum(shares) / len(shares) >= 0.99
    assert min(shares) >= 0.97  # 99% of 200, less three standard deviations


def test_two_unlucky_draws_are_no_proof():
    """Pearson's test gave p = 0.019 and said "unlike" of plain sampling. Draws that are far enough
    off are proof."""
    assert p_value([120, 80], [0.5, 0.5]) > 0.01
    assert p_value([180, 20], [0.5, 0.5]) < 1e-4
    assert p_value([200], [1.0]) is None
    assert p_value([0, 0], [0.5, 0.5]) is None


def test_the_usual_distance_is_that_of_simulated_draws():
    chances = (0.3, 0.25, 0.2, 0.15, 0.1, 0.0)
    counts = np.random.default_rng(0).multinomial(100, chances, size=2000)
    simulated = sum(variation(row, chances) for row in counts.tolist()) / len(counts)
    assert by_chance(100, chances) == pytest.approx(simulated, rel=0.02)


def test_holm_as_the_textbooks_have_it():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([None, 0.6, 0.7, None]) == [None, 1.0, 1.0, None]


def prefixes(situation: Situation, warping: Warping | None = None) -> dict[Tokens, float]:
    """The law of every prefix of up to three tokens of the toy target."""
    law: dict[Tokens, float] = {}
    for text, p in ancestral(situation, warping or situation.warping).items():
        for depth in range(1, min(3, len(text)) + 1):
            law[text[:depth]] = law.get(text[:depth], 0.0) + p
    return law


def test_a_decoder_with_a_mistake_is_found_and_the_right_one_is_not():
    """Speculative sampling that keeps every draft token is off by more than 0.1, and 1,000 draws
    show it; the decoder itself passes."""
    situation, honest = drawn(4, 5), "return Law.TARGET if self.lenience == 1 else None"
    lenient = mutant(Tokenwise, (honest, "return Law.TARGET"))
    wrong = Made(Chain(draft_length=2), lenient(lenience=0.05))
    right = Speculative(draft_length=2)
    assert distance(wrong, situation) >= 0.1
    found = cells(prefixes(situation))
    values = {}
    for name, method in (("wrong", wrong), ("right", right)):
        texts = (decode(method, situation, SeededSource(seed)).output for seed in range(1000))
        values[name] = p_value(found.counts(texts), found.chances)
    assert values["wrong"] < LEVEL
    assert values["right"] > 0.01


few_texts = st.lists(st.floats(0.001, 1.0), min_size=1, max_size=12).map(
    lambda weights: {(i,): w / sum(weights) for i, w in enumerate(weights)}
)


@given(few_texts)
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
    chances = sorted([0, 0.2, 0.1 + 0.01, 0.2, 0.3, 0.2 - 0.01])
    assert sorted(found.chances) == pytest.approx(chances)
    texts = [(1, 2, 3), (1, 2, 9), (1, 7), (4, 4), (5,), (8, 8), (1, 2, 3, 4, 5)]
    assert sorted(found.counts(texts)) == [0, 1, 1, 1, 2, 2]


def test_what_is_rare_shares_a_cell():
    """All texts rarer than five draws were one cell: of a flat law nothing was compared."""
    found = cells({(i,): 0.01 for i in range(100)})
    assert found.chances == pytest.approx([LEAST] * 20 + [0])
    assert found.counts([(i,) for i in range(100)]) == [5] * 20 + [0]


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
