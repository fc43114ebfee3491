"""The tests of a canary: how often they find wrong servers, and how often they blame right ones.

The servers are made up, the tests are those of the command, with the draws of its default.
"""

import tracemalloc

import numpy as np
import pytest
import torch

from tests.workbench.engines.canary_rules import LATER, RIGHT, WRONG, P, variation
from workbench.engines.canary import (
    LEVEL,
    SOUGHT,
    Draws,
    Probe,
    Tally,
    checks,
    controls,
    joined,
    labels,
    merging,
    one_place,
    p_value,
    shares,
    tally,
    unlike,
)

DRAWS = Probe().draws


def flagged(server, times: int, seed: int) -> int:
    source = np.random.default_rng(seed)
    return sum(int(unlike(server.watched(DRAWS, source))) for _ in range(times))


@pytest.mark.parametrize("rule", WRONG)
def test_a_rule_that_is_off_by_a_tenth_is_found_in_99_of_100(rule):
    assert DRAWS == 2000
    assert flagged(WRONG[rule], 100, 0) >= 99


def test_a_right_server_is_blamed_at_most_twice_in_200():
    assert LEVEL == 0.001
    assert flagged(RIGHT, 200, 0) <= 2


def test_the_made_up_rules_are_off_by_a_tenth():
    for rule, server in WRONG.items():
        if server.bonus is None:
            off = float((LATER * variation(P, server.later)).sum())
            assert off == pytest.approx(SOUGHT, abs=0.002), rule
            assert np.allclose(server.later.sum(-1), 1)
            assert server.later.min() >= 0


def test_p_values_of_right_servers_are_uniform():
    """With half of the usual draws, where more cells are rare."""
    source = np.random.default_rng(3)
    found = [checks(RIGHT.watched(DRAWS // 2, source)) for _ in range(150)]
    p = np.array([[p_value(np.array(c.statistic), c.degrees) for c in each] for each in found])
    assert abs((p < 0.1).mean() - 0.1) < 0.03
    assert abs((p < 0.5).mean() - 0.5) < 0.05
    assert (p < 0.01).mean() < 0.02


def test_the_control_says_when_draws_are_too_few():
    source = np.random.default_rng(0)

    def control(texts: int):
        draws = RIGHT.watched(texts, source)
        other = (draws.chances[:, ::-1], np.full(len(draws.position), 0.8))
        made = Draws(draws.position, draws.cells, draws.chances, (), {"x": other})
        return controls(made, 0, 40)[0]

    few, many = control(30), control(2000)
    assert few.caught < 10
    assert many.caught == many.times == 40
    assert many.variation == pytest.approx(SOUGHT)


def test_a_control_that_cannot_be_off_so_far_says_how_far_it_is():
    draws = RIGHT.watched(500, np.random.default_rng(0))
    near = (draws.chances, np.full(len(draws.position), 0.01))
    (found,) = controls(
        Draws(draws.position, draws.cells, draws.chances, (), {"x": near}), 0, times=20
    )
    assert found.variation == pytest.approx(0.01)
    assert found.caught <= 1


def test_a_control_holds_a_few_of_its_repetitions_at_once():
    """It held the draws of all hundred, so that many draws ended in a full memory."""
    source, places = np.random.default_rng(0), 200_000
    law = np.tile([0.5, 0.3, 0.2], (places, 1))
    other = (law[:, ::-1], np.full(places, 0.3))
    cells = source.integers(0, 3, places)
    draws = Draws(np.arange(places) % 2, cells, law, (), {"x": other})

    def peak(times: int) -> int:
        tracemalloc.start()
        controls(draws, 0, times)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(12) < 1.2 * peak(2)


def test_pearson_s_statistic_is_the_same_where_all_places_are_alike():
    law = np.array([0.5, 0.3, 0.2])
    cells = np.repeat([0, 1, 2], [460, 320, 220])
    statistic, degrees = tally(cells, np.tile(law, (1000, 1))).statistic()
    counts = np.array([460, 320, 220])
    assert degrees == 2
    assert float(statistic) == pytest.approx(((counts - 1000 * law) ** 2 / (1000 * law)).sum())
    alone, same = one_place(law, counts).statistic()
    assert (float(alone), same) == (pytest.approx(float(statistic)), 2)
    assert float(p_value(statistic, 2)) == pytest.approx(np.exp(-float(statistic) / 2))


def test_rare_cells_are_merged_by_the_law_alone():
    variances = np.diag([100.0, 50.0, 6.0, 5.0, 4.0])
    assert merging(variances).tolist() == [
        [1, 0, 0, 0, 0],
        [0, 1, 1, 1, 1],
    ]
    assert merging(np.diag([1.0, 1.0])).tolist() == [[1, 1]]


def test_nothing_is_tested_where_nothing_is_random():
    certain = Tally(np.array([10, 0]), np.array([10.0, 0.0]), np.zeros((2, 2)))
    statistic, degrees = certain.statistic()
    assert (float(statistic), degrees) == (0.0, 0)
    assert float(p_value(statistic, degrees)) == 1.0


def test_cells_divide_the_tokens_by_rank_and_by_what_the_draft_likes():
    p = torch.tensor([[0.4, 0.3, 0.1, 0.1, 0.05, 0.05]])
    q = torch.tensor([[0.5, 0.2, 0.1, 0.1, 0.10, 0.00]])
    assert labels(p, None).tolist() == [[0, 1, 1, 1, 2, 2]]
    assert labels(p, q).tolist() == [[5, 1, 1, 1, 7, 2]]
    cell = labels(p, q)
    assert shares(p, cell, True)[0].tolist() == pytest.approx(
        [0, 0.5, 0.05, 0, 0, 0.4, 0, 0.05, 0, 0]
    )
    assert shares(p, labels(p, None), False).shape == (1, 5)


def test_pieces_are_joined_in_order():
    source = np.random.default_rng(0)
    a, b = RIGHT.watched(20, source), RIGHT.watched(30, source)
    both = joined([a, b])
    assert len(both.position) == len(a.position) + len(b.position)
    assert len(both.starts) == 8
    assert (both.cells[: len(a.cells)] == a.cells).all()
