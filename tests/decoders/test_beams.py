"""Beams alone: their joint, their warping, their best."""

import math

import pytest
import torch

from decoders.beams import Beam, beam_probs, best, extend, joint
from decoders.testing.oracle import Source, Watched
from decoders.warp import Warping


def request(warping=Warping()):  # noqa: B008 - frozen
    return Watched([0], Source(), warping, 9)


def test_the_joint_adds_each_beams_score_to_its_own_row():
    logits = torch.tensor([[0.7, 0.3], [0.5, 0.5]], dtype=torch.float64).log() + 5
    beams = [Beam(0, math.log(0.2)), Beam(0, math.log(0.6))]
    assert joint(beams, logits, origin=0.0).exp().flatten().tolist() == pytest.approx([0.14, 0.06, 0.3, 0.3])
    assert joint(beams, logits).exp().flatten().tolist() == pytest.approx([0.14 / 0.6, 0.06 / 0.6, 0.5, 0.5])


@pytest.mark.parametrize("score", [-24_000.0, -300_000.0])
def test_a_long_beams_score_costs_no_digits(score):
    """In float32 the scores of long texts were added first: at -24,000 the distribution drawn from was off by a total variation of
    2.5e-4, at -300,000 by 3.7e-3."""
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    beams = [Beam(0, score - 1.25), Beam(0, score), Beam(0, score - 0.5)]
    exact = beam_probs(request(), joint(beams, logits))
    found = beam_probs(request(), joint(beams, logits.float()))
    assert (found.double() - exact).abs().sum() / 2 < 1e-6
    r = request()
    roots = [Beam(r.tree.add(0, i), beam.score) for i, beam in enumerate(beams)]
    after = extend(r, roots, joint(roots, logits.float()), 50 + 7).beam
    assert after.score - score == pytest.approx(logits.log_softmax(-1)[1, 7].item(), abs=1e-6)


def test_beams_that_are_all_impossible_stay_so():
    """A draft that lacks tokens of the target can leave a search with such beams alone."""
    beams = [Beam(0, -math.inf), Beam(0, -math.inf)]
    assert joint(beams, torch.zeros(2, 3)).flatten().tolist() == [-math.inf] * 6


def test_the_warping_is_applied_once_to_the_flattened_joint():
    log_joint = torch.tensor([[0.14, 0.06], [0.31, 0.29]], dtype=torch.float64).log()
    found = beam_probs(request(Warping(0.5, top_k=3)), log_joint)
    squares = [0.14**2, 0, 0.31**2, 0.29**2]
    assert found.shape == (2, 2)
    assert found.flatten().tolist() == pytest.approx([x / sum(squares) for x in squares])


def test_an_index_of_the_joint_is_a_beam_and_a_token():
    r = request()
    a, b = r.tree.add(0, 1), r.tree.add(0, 2)
    draw = extend(r, [Beam(a, 0.0), Beam(b, 0.0)], torch.arange(6.0).view(2, 3), 3)
    assert (draw.parent, draw.token, draw.beam.score, r.path(draw.beam.node)) == (1, 0, 3.0, (0, 2, 0))


def test_the_best_beam_has_the_lowest_perplexity_ties_to_the_earliest():
    r = request()
    a = r.tree.add(0, 1)
    b = r.tree.add(a, 2)
    assert best(r, [Beam(a, -1.1), Beam(b, -2.0)]).node == b
    assert best(r, [Beam(a, -1.0), Beam(b, -2.0)]).node == a
    assert best(r, [Beam(b, -2.0), Beam(a, -1.0)]).node == b
