"""Texts that the target never writes prove a fault; effects of rounding do not."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import decoders
from decoders.distribution import Warping, warp
from tests.models import plain_logits
from tests.pairwise import part
from tests.workbench.measuring.test_draws import draw, ended
from workbench.measuring.transcript import FINE, cut_off
from workbench.runs.draws import findings
from workbench.show.draws import verdict

logits = st.lists(st.floats(-3, 3), min_size=3, max_size=8)
warpings = st.builds(
    Warping, st.sampled_from([1e-300, 0.1, 0.7, 1.0, 2.0]), st.integers(0, 6),
    st.sampled_from([0.05, 0.5, 0.9, 0.999, 1.0]), st.sampled_from([0.0, 0.05, 0.5]),
    st.sampled_from([0.0, 0.5, 1.2]), st.booleans(),
)  # fmt: skip


@given(logits, st.data(), warpings, st.sampled_from([0.0, 1e-3, 0.05, 0.5]))
def test_what_any_rounding_lets_in_is_not_cut_off(row, data, warping, noise):
    """An exact decoder asks in passes of another shape: near-ties at the edge of top-k and top-p
    may fall the other way there."""
    rounding = data.draw(st.lists(st.floats(-noise, noise), min_size=len(row), max_size=len(row)))
    here = torch.tensor(row, dtype=torch.float64)
    there = warp(here + torch.tensor(rounding, dtype=torch.float64), warping)
    for token in range(len(row)):
        if there[token] > 0:
            assert not cut_off(here, token, warping, noise + 1e-9)


@pytest.mark.parametrize(("warping", "row", "out"), [
    (Warping(1.0, 2, 1.0), [3.0, 2.0, 1.0, 0.0], [2, 3]),
    (Warping(1.0, 2, 1.0), [3.0, 2.0, 1.95, 0.0], [3]),  # a near-tie at the edge of top-k
    (Warping(1.0, 0, 0.9), [3.0, 0.0, -1.0, -2.0], [1, 2, 3]),  # 0.93, 0.05, 0.02, 0.01
    # at the edge of top-p: the second may be in
    (Warping(1.0, 0, 0.93), [3.0, 0.0, -1.0, -2.0], [2, 3]),
    (Warping(1.0, 0, 1.0), [3.0, 0.0, -1.0, -2.0], []),
    (Warping(min_p=0.2), [3.0, 1.5, 1.35, 0.0], [3]),  # at the edge is e^-1.61
    (Warping(top_n_sigma=1.0), [3.0, 1.7, 1.85, 0.0], [1, 3]),  # at 1.93, give or take 0.15
    (Warping(1e-300, 0, 0.9), [3.0, 2.95, 1.0, 0.0], [2, 3]),
])  # fmt: skip
def test_what_is_cut_off(warping, row, out):
    row = torch.tensor(row)
    assert [token for token in range(4) if cut_off(row, token, warping, FINE)] == out


def test_a_decoder_that_ignores_top_k_is_caught_by_one_text(pair, unmetered, monkeypatch):
    """Through the models: with top-k 2 it draws from three tokens."""
    shared = {"top_k": 2, "top_p": 1.0, "temperature": 1.0, "draws": 40}
    speculative = decoders.catalog["speculative"]
    usual = speculative.warping
    study = draw("multinomial", "speculative", **shared)
    assert verdict(ended(pair, study, unmetered)).startswith(
        "Plain sampling and Speculative draw like"
    )

    def wrong_warping(self, warping):
        three = Warping(warping.temperature, 3, warping.top_p)
        return three if warping.top_k == 2 else usual(self, warping)

    monkeypatch.setattr(speculative, "warping", wrong_warping)
    run = ended(pair, study, unmetered)
    right, wrong = findings(run)
    assert (right.never, right.unlike) == ("", False)
    assert (wrong.p, wrong.unlike) == (0, True)
    assert f"Seed {wrong.seed} of Speculative wrote “" in verdict(run)
    never = [tuple(prefix.tokens) for prefix in run.exact if prefix.p == 0]
    assert never
    ids = list(pair.tokenizer("abab").input_ids)
    for *before, token in never:
        assert token not in plain_logits(pair.target, [*ids, *before]).topk(2).indices.tolist()


@pytest.mark.parametrize(
    "shared", part([{"min_p": 0.1, "top_n_sigma": 2.0}, {"top_k": 3}, {"top_p": 0.5}], 3)
)
def test_exact_decoders_never_write_what_the_target_never_writes(pair, unmetered, shared):
    names = ["multinomial", "speculative", "specinfer", "dsbd", "beam_sampling"]
    study = draw(*names, draws=100, temperature=1.0, **{"top_p": 1.0, **shared})
    run = ended(pair, study, unmetered)
    assert [each.never for each in findings(run)] == [""] * 5
    assert all(prefix.p > 0 for prefix in run.exact)
