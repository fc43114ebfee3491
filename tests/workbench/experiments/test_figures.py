"""Figures of rows made by hand, whose answers are plain."""

import math
from dataclasses import replace

import pytest

from tests.workbench.experiments.made import row, sample
from workbench.experiments import figures
from workbench.experiments.journal import CellRows


def kept(
    decoder: str, seconds: list[float], perplexity=2.0, timed=True, scores=None, **metrics
) -> CellRows:
    """10 tokens for each item."""
    asked = {
        "decoder": decoder, "scheme": "unpadded", "timed": timed, "settings": {"beams": 4},
        "temperature": 1.0,
    }  # fmt: skip
    rows = {}
    for i, s in enumerate(seconds):
        made = {
            "new_tokens": 10, "seconds": s, "perplexity": perplexity, "target_calls": 5, **metrics,
        }  # fmt: skip
        score = None if scores is None else {"score": scores[i]}
        each = sample(i, gained=[5, 1, 4], drafted=[4, 4, 4], scores=score, category="ab"[i % 2])
        rows[i] = row([each], made)
    return CellRows("part", decoder, decoder, "block", len(seconds), asked, rows)


GREEDY = kept("greedy", [1.0, 2.0, 4.0])


def test_speeds_and_ratios_are_of_sums():
    fast = kept("speculative", [0.5, 1.0, 2.0])
    assert figures.figure("tokens/s", GREEDY).value == pytest.approx(30 / 7)
    found = figures.figure("x greedy", fast, GREEDY)
    # every prompt twice as fast: pairing takes the rest away
    assert (found.low, found.value, found.high) == pytest.approx((2, 2, 2))
    speed = figures.figure("tokens/s", fast)
    assert speed.low < speed.value < speed.high


def test_perplexity_is_over_all_tokens_and_a_score_over_all_outputs():
    two = kept("a", [1.0, 1.0])
    two.rows[1].metrics.update(new_tokens=30, perplexity=8.0)
    mean = math.exp((10 * math.log(2) + 30 * math.log(8)) / 40)
    assert figures.figure("perplexity", two).value == pytest.approx(mean)
    assert figures.figure("score", kept("a", [1.0] * 4, scores=[1, 0, 0, 0])).value == 0.25
    assert figures.figure("score", kept("a", [1.0], scores=[0])).value == 0.0
    assert figures.figure("score", two) is None


def test_what_was_not_measured_has_no_figure():
    assert figures.figure("J/token", GREEDY) is None
    assert figures.figure("tokens/s", kept("a", [1.0], timed=False)) is None
    assert figures.figure("x greedy", GREEDY, None) is None
    assert figures.figure("perplexity", kept("a", [])) is None


def test_rows_with_an_error_do_not_count():
    some = kept("a", [1.0, 1.0, 100.0])
    some.rows[2] = row([sample(2, error="broken")], some.rows[2].metrics)
    assert figures.figure("tokens/s", some).value == pytest.approx(10)
    assert figures.common(some, GREEDY) == [0, 1]


def test_a_paired_difference_is_sure_where_each_alone_is_not():
    slow = kept("slow", [1.1, 2.2, 4.4])
    gap = figures.below("tokens/s", slow, GREEDY, [slow, GREEDY])
    assert gap.low > 0
    assert figures.figure("tokens/s", slow).high > figures.figure("tokens/s", GREEDY).low


def test_timing_the_same_prompts_again_makes_no_further_prompts_of_them():
    """Three timings of each prompt narrowed perplexity's interval more than new prompts can."""
    once = kept("a", [1.0, 2.0, 3.0, 4.0])
    twice = kept("a", [1.0, 2.0, 3.0, 4.0] * 2)
    for i, each in twice.rows.items():
        twice.rows[i] = replace(each, samples=[replace(each.alone, prompt=i % 4)])
    assert figures.figure("tokens/s", twice) == figures.figure("tokens/s", once)


def test_an_ordering_can_be_about_one_category():
    """The second item is of category b: there the first decoder is the faster one."""
    one, other = kept("speculative", [1.0, 1.0, 1.0]), kept("mtad", [0.5, 2.0, 0.5])
    found = figures.below("tokens/s", one, other, [], figures.categories(one)["b"])
    assert found.value == pytest.approx(-5)
    found = figures.below("tokens/s", one, other, [], figures.categories(one)["a"])
    assert found.value == pytest.approx(10)
    assert figures.below("tokens/s", one, other, [], []) is None
