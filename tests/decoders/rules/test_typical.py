import math

import pytest
import torch

from decoders.distribution import Warping
from decoders.methods.catalog import catalog
from decoders.methods.lossy import TypicalRule
from decoders.methods.rules import Node
from decoders.testing.oracle import Source, output_law
from decoders.testing.situations import ancestral, drawn, variation
from tests.pieces import FORMS, reading, small


def kept(p: list[float], token: int, **settings: float) -> bool:
    p = torch.tensor(p, dtype=torch.float64)
    (kept,) = {
        TypicalRule(**settings).pick(Node(P(p), None, [token], reading(p)), Source()).kept
        for P in FORMS.values()
    }
    return kept


def test_a_token_stays_above_epsilon_or_above_delta_exp_minus_entropy():
    sure = [0.85, 0.1, 0.05]  # exp(-H) = 0.596, so delta's part is 0.179 and epsilon is the smaller
    assert [kept(sure, t) for t in range(3)] == [True, True, False]
    unsure = [0.05, 0.04, *[0.01] * 91]  # delta exp(-H) = 0.0038: there nearly everything passes
    assert kept(unsure, 2)
    entropy = -sum(x * math.log(x) for x in unsure)
    assert not kept(unsure, 2, delta=0.0101 * math.exp(entropy))
    assert kept(unsure, 2, delta=0.0099 * math.exp(entropy))


def test_the_bound_itself_does_not_pass():
    assert not kept([0.5, 0.5], 0, epsilon=0.5, delta=1.0)  # delta exp(-H) = 0.5 too


def test_a_refused_token_makes_way_for_the_targets_own():
    """No residual: the refused token may come again."""
    p = torch.tensor([0.97, 0.03], dtype=torch.float64)
    pick = TypicalRule().pick(Node(small(p), small(p), [1], reading(p)), Source())
    assert not pick.kept
    assert pick.rest.mass == small(p).mass
    assert pick.tests == [(p[1].item(), p[1].item(), None, None)]  # nothing was tossed


@pytest.mark.parametrize("temperature", [0.0, 1e-3])
@pytest.mark.parametrize("seed", range(3))
def test_towards_temperature_0_it_is_greedy(temperature, seed):
    situation = drawn(3, seed, budget=4, warping=Warping(temperature))
    greedy = ancestral(situation, Warping(temperature=0))
    assert variation(output_law(catalog["typical"](draft_length=2), situation), greedy) < 1e-9
