"""Figures of loads, by hand, and their energy with its estimated parts."""

import numpy as np
import pytest

from tests.workbench.experiments.loads import kept, load
from workbench.experiments.engine_energy import PARTS, spent, work
from workbench.experiments.engine_figures import FIGURES, quantile
from workbench.experiments.plan import Costs
from workbench.runs.trace import Energy

BY_NAME = {figure.name: figure.of for figure in FIGURES}
COSTS = Costs(prompt=3.0, draft=0.1, token=0.05)


def value(name, cell):
    found = BY_NAME[name](cell)
    return None if found is None else found.value


def test_figures_of_requests_are_those_of_their_arrivals():
    # first tokens after 0.1, 0.2, 0.3 and 0.9 s; then 2 more tokens in 0.2, 0.4, 0.6 and 0.2 s
    cell = kept(load([[0.1, 0.3], [0.2, 0.4, 0.6], [0.3, 0.9], [0.9, 1.1]]))
    assert value("first token, ms", cell) == pytest.approx(200)
    assert value("first token, 95%", cell) == pytest.approx(900)
    assert value("between tokens, ms", cell) == pytest.approx(100)
    assert value("between tokens, 95%", cell) == pytest.approx(300)
    # 3 / 1.1, 3 / 0.9, 3 / 0.6 and 3 / 0.3
    assert value("tokens/s each", cell) == pytest.approx(3 / 0.9)
    assert value("tokens/s", cell) == pytest.approx(12 / 1.1)


def test_what_is_not_told_is_not_there():
    cell = kept(load([[], []], count=1, seconds=1.0))
    names = {name for name in BY_NAME if value(name, cell) is not None}
    assert names == {"tokens/s"}
    partly = kept(
        load([[1.0]], drafted=4, accepted=2, verifications=2), load([[1.0]], drafted=4, accepted=2)
    )
    assert value("acceptance length", partly) is None
    assert value("accepted", partly) == 0.5


def test_an_answer_that_comes_at_once_has_no_times_of_tokens():
    """A server that does not stream had 0 ms between tokens, and its whole answer's time as that of
    the first token."""
    cell = kept(load([[0.4], [0.5]]))
    assert value("between tokens, ms", cell) is None
    assert value("first token, ms", cell) is None
    assert value("tokens/s each", cell) == pytest.approx(3 / 0.5)
    assert value("first token, ms", kept(load([[0.4]], count=1))) == pytest.approx(400)


def test_the_acceptance_length_is_over_all_verifications():
    loads = (
        load([[1.0]], drafted=9, accepted=6, verifications=3),
        load([[1.0]], drafted=3, accepted=0, verifications=1),
    )
    assert value("acceptance length", kept(*loads)) == 10 / 4
    assert value("accepted", kept(*loads)) == 6 / 12


def test_a_quantile_is_a_value_and_its_interval_is_that_of_whole_prompts():
    groups = [[float(i)] * 3 for i in range(20)]
    found = quantile(groups, 0.5)
    assert found.value == 9
    # of 20 prompts the median's binomial interval has ranks 6 to 15
    assert 4 <= found.low <= 7
    assert 12 <= found.high <= 15
    assert quantile([[1.0], [2.0], [3.0]], 0.95).value == 3
    assert quantile([], 0.5) is None
    rng = np.random.default_rng(0)
    values = rng.random(101)
    assert quantile([[v] for v in values], 0.5).value == np.median(values)


JOULES = Energy(60.0, "CPU package (RAPL)")
DRAFTS = {"drafted": 40, "accepted": 10, "verifications": 20}


def test_energy_is_in_total_per_token_and_per_accepted_token():
    found = spent(kept(load([[1.0], [1.0]], count=15, energy=JOULES, **DRAFTS), length=2), None)
    assert (found.joules.value, found.per_token.value, found.per_accepted.value) == (60, 2, 6)
    assert found.parts is None  # costs are not known


def test_without_a_counter_there_is_no_energy():
    assert spent(kept(load([[1.0]], **DRAFTS), length=2), COSTS) is None
    both = kept(load([[1.0]], energy=JOULES), load([[1.0]]))
    assert spent(both, COSTS) is None


def test_the_parts_are_passes_times_costs_and_sum_to_the_whole():
    cell = kept(load([[1.0], [1.0]], count=15, energy=JOULES, **DRAFTS), length=2)
    # two prompts; 10 useful draft tokens; 20 passes with 10 useful tokens more; 30 in vain
    assert work(cell, COSTS) == pytest.approx(
        {"prompts": 6.0, "drafting": 1.0, "verifying": 20.5, "refused": 4.5}
    )
    parts = spent(cell, COSTS).parts
    assert tuple(parts) == PARTS
    assert sum(parts.values()) == pytest.approx(60)
    assert parts["verifying"] == pytest.approx(60 * 20.5 / 32)


def test_without_a_draft_every_token_but_the_first_is_a_pass():
    plain = kept(load([[1.0], [1.0]], count=15, energy=JOULES), length=0)
    assert work(plain, COSTS) == {"prompts": 6, "drafting": 0, "verifying": 28, "refused": 0}


@pytest.mark.parametrize("length", [2, None])
def test_where_passes_are_not_told_there_are_no_parts(length):
    cell = kept(load([[1.0]], energy=JOULES, drafted=40, accepted=10), length=length)
    assert work(cell, COSTS) is None
    found = spent(cell, COSTS)
    assert (found.joules.value, found.parts) == (60, None)


def test_costs_of_nothing_have_no_parts():
    cell = kept(load([[1.0]], count=1, energy=JOULES), length=0)
    assert spent(cell, Costs(0, 0, 0)).parts is None
