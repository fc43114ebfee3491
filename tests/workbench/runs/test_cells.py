"""The statistics of draws, without a model: true laws are not suspected, and mistakes are found."""

import math
import random
from collections.abc import Callable
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders.methods.speculative import Speculative
from decoders.sampling import SeededSource
from decoders.testing import Situation, decode, distance, drawn, mutant
from decoders.testing.laws import ancestral
from decoders.warp import Warping
from workbench.runs.cells import LEAST, Cells, Tokens, cells, holm, of_exact_sampler, p_value, variation

EXPERIMENTS, DRAWS = 200, 100


def prefixes(situation: Situation, warping: Warping | None = None) -> dict[Tokens, float]:
    """The law of every prefix of up to three tokens of the toy target."""
    law: dict[Tokens, float] = {}
    for text, p in ancestral(situation, warping or situation.warping).items():
        for depth in range(1, min(3, len(text)) + 1):
            law[text[:depth]] = law.get(text[:depth], 0.0) + p
    return law


def experiment(law: dict[Tokens, float], draw: Callable[[random.Random], Tokens], seed: int, draws: int) -> float:
    source, found = random.Random(seed), cells(law, draws)
    return p_value(found.counts(draw(source) for _ in range(draws)), found.chances)


def kolmogorov(values: list[float]) -> float:
    """The p value of the Kolmogorov-Smirnov test of uniformity (asymptotic, with Stephens' correction)."""
    n, ordered = len(values), sorted(values)
    furthest = max(max((i + 1) / n - x, x - i / n) for i, x in enumerate(ordered))
    x = (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n)) * furthest
    return min(1.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * x) ** 2) for k in range(1, 101)))


@pytest.mark.parametrize(
    "situation",
    [drawn(6, 1), drawn(30, 2), drawn(6, 3, warping=Warping(0.7, 0, 0.9)), drawn(5, 4, end=frozenset({0}))],
    ids=["six tokens", "thirty tokens", "warped", "with an end"],
)
def test_p_values_of_a_true_law_are_uniform(situation):
    """200 experiments of 100 draws with fixed seeds."""
    texts = ancestral(situation, situation.warping)
    names, bounds = list(texts), list(accumulate(texts.values()))
    law = prefixes(situation)
    found = [
        experiment(law, lambda source: source.choices(names, cum_weights=bounds)[0], seed, DRAWS)
        for seed in range(EXPERIMENTS)
    ]
    assert kolmogorov(found) > 0.01


def test_the_measure_of_uniformity_finds_what_is_not():
    assert kolmogorov([(i / 200) ** 1.6 for i in range(200)]) < 0.01
    assert kolmogorov([(i + 0.5) / 200 for i in range(200)]) > 0.99


def test_a_decoder_with_a_mistake_is_found_and_the_right_one_is_not():
    """Speculative sampling that keeps every draft token is off by more than 0.1, and 1,000 draws show it; the decoder itself passes."""
    situation = drawn(4, 5)
    wrong = mutant(Speculative, ('return "target" if self.lenience == 1 else None', 'return "target"'))(
        draft_length=2, lenience=0.05
    )
    right = Speculative(draft_length=2)
    assert distance(wrong, situation) >= 0.1
    law = prefixes(situation)
    found = cells(law, 1000)
    values = {}
    for name, method in (("wrong", wrong), ("right", right)):
        texts = (decode(method, situation, SeededSource(seed)).output for seed in range(1000))
        values[name] = p_value(found.counts(texts), found.chances)
    assert values["wrong"] < 0.001
    assert values["right"] > 0.01


laws = st.lists(st.floats(0.001, 1.0), min_size=1, max_size=12).map(
    lambda weights: {(i,): w / sum(weights) for i, w in enumerate(weights)}
)


@given(laws, st.integers(10, 1000))
def test_cells_part_all_texts_and_are_large_enough(law, draws):
    found = cells(law, draws)
    assert abs(sum(found.chances) - 1) < 1e-9
    assert len(found.chances) == 1 or min(found.chances) * draws >= LEAST - 1e-6
    counts = found.counts([(), (0,), (99,), (0, 5, 7)])
    assert sum(counts) == 4


def test_longer_prefixes_have_cells_and_what_is_beside_them_has_one():
    law = {(1,): 0.5, (1, 2): 0.3, (1, 2, 3): 0.2, (4,): 0.3, (5,): 0.01}
    found = cells(law, 100)
    assert sorted(found.chances) == pytest.approx(sorted([0.2, 0.1, 0.2, 0.3, 0.2]))
    texts = [(1, 2, 3), (1, 2, 9), (1, 7), (4, 4), (5,), (8, 8), (1, 2, 3, 4, 5)]
    assert sorted(found.counts(texts)) == [1, 1, 1, 2, 2]


def test_cells_do_not_depend_on_what_was_drawn():
    """Cells pooled by what was observed would be fuller than chance has it, and the p values too small."""
    law = {(i,): 0.04 for i in range(25)}
    found = cells(law, 100)
    assert found.chances == (pytest.approx(1.0),)
    assert p_value(found.counts([(0,)] * 100), found.chances) is None


def test_a_law_from_a_broken_file_gives_cells_all_the_same():
    assert cells({(1, 2): 0.9, (): 3.0, (7,): 0.6, (8,): 0.7}, 100).counts([(7,), (9,)])
    assert sum(cells({(7,): 1.0, (8,): 1.0}, 50).chances) == pytest.approx(1.0)


def test_pearson_and_holm_as_the_textbooks_have_them():
    """Sokal's peas: 315, 108, 101, 32 of 9:3:3:1 give chi-square 0.47, p 0.925; Holm of 0.01, 0.04, 0.03, 0.005 is 0.03, 0.06, 0.06, 0.02."""
    assert p_value([315, 108, 101, 32], [9 / 16, 3 / 16, 3 / 16, 1 / 16]) == pytest.approx(0.9254, abs=1e-4)
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([None, 0.6, 0.7, None]) == [None, 1.0, 1.0, None]
    assert p_value([0, 0], [0.5, 0.5]) is None


def test_an_exact_sampler_is_as_far_off_as_theory_says():
    """Of n draws from two equal cells the mean total variation is about 1 / sqrt(2 pi n)."""
    usual, most = of_exact_sampler(100, (0.5, 0.5))
    assert usual == pytest.approx(1 / math.sqrt(200 * math.pi), rel=0.05)
    assert usual < most < 0.12
    assert variation([60, 40], (0.5, 0.5)) == pytest.approx(0.1)


def test_a_cell_that_the_law_makes_impossible_is_no_division_by_zero():
    found = cells({(1,): 0.5, (2,): 0.5}, 100)
    assert isinstance(found, Cells)
    assert p_value(found.counts([(3,)] * 100), found.chances) < 1e-6
