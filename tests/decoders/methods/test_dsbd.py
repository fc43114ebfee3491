"""DSBD: the beams of every layer are i.i.d. draws of p_beam, whatever the forest.

With a fixed width the whole output has beam sampling's law."""

import itertools

import pytest

from decoders import theory
from decoders.distribution import Warping
from decoders.methods import dsbd
from decoders.methods.dsbd import DSBD
from decoders.testing.oracle import assert_exact, ways
from decoders.testing.situations import Rows, Situation, drawn
from decoders.trace import Fate

END = frozenset({1})
PER_LAYER = "beam sampling per layer"


@pytest.mark.parametrize("law", ["beam sampling", PER_LAYER])
@pytest.mark.parametrize(
    ("method", "situation"),
    [
        (DSBD(1, 2, 2), drawn(2, 1, budget=2)),
        (DSBD(2, 2, 1), drawn(2, 2)),
        (DSBD(2, 2, 2), drawn(3, 5, warping=Warping(1.0, 2), end=END)),
        (DSBD(1, 3, 2), drawn(2, 6, warping=Warping(1.3, 2))),
        (DSBD(1, 2, 3), drawn(2, 7, budget=2, warping=Warping(0.8, 2))),
        (DSBD(1, 1, 2), drawn(3, 8, warping=Warping(1.0, 3, 0.9), end=END)),
    ],
    ids=repr,
)
def test_with_a_fixed_width_the_output_has_beam_samplings_law(method, situation, law):
    assert_exact(method, situation, law=law)


@pytest.mark.parametrize(
    ("method", "situation"),
    [
        (DSBD(2, 2), drawn(2, 1)),
        (DSBD(2, 3, width_threshold=0.3), drawn(2, 2, warping=Warping(0.7, 2), end=END)),
        (
            DSBD(1, 3, width_threshold=0.7, min_beams=2),
            drawn(2, 3, budget=2, warping=Warping(0.9, 2)),
        ),
        (DSBD(2, 2, width_threshold=0.2), drawn(3, 4, warping=Warping(1.0, 0, 0.7), end=END)),
        (DSBD(1, 3, width_threshold=0.1, keep_one=True), drawn(2, 5, warping=Warping(0.7, 2))),
        (DSBD(2, 2, 2, keep_one=True), drawn(2, 4, warping=Warping(0.7, 3), end=END)),
    ],
    ids=repr,
)
def test_with_dynamic_width_or_one_kept_beam_each_layer_is_iid(method, situation):
    assert_exact(method, situation, law=PER_LAYER)


@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("end", [frozenset(), END], ids=["no end", "end"])
def test_one_draw_and_one_beam_is_speculative_decoding(gamma, end):
    for i, warping in enumerate([Warping(), Warping(0.7, 2), Warping(1.2, 0, 0.8)]):
        assert_exact(DSBD(gamma, 1, 1), drawn(3, i, warping=warping, end=end), law="target")
        assert_exact(DSBD(gamma, 1), drawn(3, i, warping=warping, end=end), law="target")


def test_the_proof_meets_dead_parents_and_duplicated_draws():
    """The laws above are proven over forests that have both cases.

    Draws whose parent was refused, and equal draws of which one was kept and another not."""
    dead = twice = split = 0
    runs = itertools.chain(
        ways(DSBD(2, 2, 1), drawn(2, 3)), ways(DSBD(1, 2, 2), drawn(2, 3, budget=2))
    )
    for _, r in runs:
        for e in r.rounds:
            drafts = [
                t for t in e.trials if t.fate in (Fate.ACCEPTED, Fate.REJECTED, Fate.DISCARDED)
            ]
            refused = {t.node for t in drafts if t.fate == Fate.REJECTED}
            accepted = {t.node for t in drafts if t.fate == Fate.ACCEPTED}
            dead += any(t.parent in refused - accepted for t in drafts)
            twice += len({t.node for t in drafts}) < len(drafts)
            split += bool(refused & accepted)
    assert min(dead, twice, split) > 3


# ---- Theorem 3.2


@pytest.mark.parametrize("threshold", [0.5, 0.9])
@pytest.mark.parametrize(("gamma", "least"), [(1, 1), (1, 2), (2, 1)])
def test_theorem_3_2_bounds_the_steps_of_a_round_from_below(threshold, gamma, least, monkeypatch):
    """beta is the smallest chance, over all layers within reach, that W_min draws are accepted."""
    betas = []

    def watched(alphas, *args):
        betas.append(sum(theory.accepted_distribution(alphas)[least:]))
        return theory.dynamic_width(alphas, *args)

    monkeypatch.setattr(dsbd, "dynamic_width", watched)
    for seed in range(2):
        betas.clear()
        situation = drawn(2, seed, budget=gamma + 1, warping=Warping(0.9, 2))
        steps = 0.0
        for probability, r in ways(
            DSBD(gamma, 2, width_threshold=threshold, min_beams=least), situation
        ):
            first = r.rounds[0]
            steps += probability * (
                max(r.tree.depths[t.node] for t in first.trials if t.log_p is not None)
            )
        assert steps >= theory.dsbd_steps(min(betas), gamma, threshold) - 1e-9


def test_theorem_3_2_fails_with_the_mean_of_beta():
    """beta is 0 or 1 with equal chance, t = 0.9, gamma = 1: 1.45 steps are made, and the formula
    with the mean promises 1.5."""
    exact = sum(theory.dsbd_steps(beta, 1, 0.9) for beta in (0.0, 1.0)) / 2
    assert exact == pytest.approx(1.45)
    assert theory.dsbd_steps(0.5, 1, 0.9) == pytest.approx(1.5)


# ---- Trace


def test_draws_below_a_layer_that_ended_are_in_the_trace():
    """Bug: if all accepted beams ended, later layers of the forest were not counted.

    The target had scored them."""
    certain_end = Rows(((0.0001, 0.9999),))
    either = Rows(((0.5, 0.5),))
    situation = Situation(certain_end, either, budget=4, warping=Warping(1.0, 0, 0.9), end=END)
    seen = 0
    for _, r in ways(DSBD(2, 2, 1), situation):
        first = r.rounds[0]
        layers = {r.tree.depths[t.node] for t in first.trials}
        if layers == {1, 2} and r.finished and len(r.rounds) == 1:
            seen += 1
            assert first.drafted == 4
            assert all(t.fate == Fate.DISCARDED for t in first.trials if r.tree.depths[t.node] == 2)
        assert first.drafted == 4 or {t.token for t in first.trials} == {1}
    assert seen


def test_the_trace_holds_p_q_and_u_of_every_draw_looked_at():
    for _, r in ways(DSBD(2, 2, 2), drawn(2, 1, warping=Warping(0.7, 2))):
        for t in (t for e in r.rounds for t in e.trials):
            looked_at = t.fate in (Fate.ACCEPTED, Fate.REJECTED)
            assert (t.u is not None) == looked_at == (t.q is not None)
            if looked_at:
                assert t.accept_probability == min(1, t.p / t.q)
                assert (t.u < t.accept_probability) == (t.fate == Fate.ACCEPTED)
