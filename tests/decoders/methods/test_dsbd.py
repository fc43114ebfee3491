"""DSBD: the beams of every layer are i.i.d. draws of p_beam, whatever the forest.

With a fixed width the whole output has beam sampling's law."""

import pytest

from decoders.distribution import Warping
from decoders.methods.dsbd import DSBD
from decoders.testing.oracle import assert_exact, ways
from decoders.testing.situations import Rows, Situation, drawn
from decoders.trace import Fate
from tests.pairwise import part

END = frozenset({1})
PER_LAYER = "beam sampling per layer"


@pytest.mark.parametrize("law", ["beam sampling", PER_LAYER])
@pytest.mark.parametrize(("method", "situation"), part([
    (DSBD(1, 2, 2), drawn(2, 1, budget=2)),
    (DSBD(2, 2, 1), drawn(2, 2)),
    (DSBD(2, 2, 2), drawn(3, 5, warping=Warping(1.0, 2), end=END)),
    (DSBD(1, 3, 2), drawn(2, 6, warping=Warping(1.3, 2))),
    (DSBD(1, 2, 3), drawn(2, 7, budget=2, warping=Warping(0.8, 2))),
    (DSBD(1, 1, 2), drawn(3, 8, warping=Warping(1.0, 3, 0.9), end=END)),
]), ids=repr)  # fmt: skip
def test_with_a_fixed_width_the_output_has_beam_samplings_law(method, situation, law):
    assert_exact(method, situation, law=law)


@pytest.mark.parametrize(("method", "situation"), part([
    (DSBD(2, 2), drawn(2, 1)),
    (DSBD(2, 3, width_threshold=0.3), drawn(2, 2, warping=Warping(0.7, 2), end=END)),
    (DSBD(1, 3, width_threshold=0.7, min_beams=2), drawn(2, 3, budget=2, warping=Warping(0.9, 2))),
    (DSBD(2, 2, width_threshold=0.2), drawn(3, 4, warping=Warping(1.0, 0, 0.7), end=END)),
    (DSBD(1, 3, width_threshold=0.1, keep_one=True), drawn(2, 5, warping=Warping(0.7, 2))),
    (DSBD(2, 2, 2, keep_one=True), drawn(2, 4, warping=Warping(0.7, 3), end=END)),
]), ids=repr)  # fmt: skip
def test_with_dynamic_width_or_one_kept_beam_each_layer_is_iid(method, situation):
    assert_exact(method, situation, law=PER_LAYER)


@pytest.mark.parametrize(("gamma", "end"), [(1, END), (2, frozenset()), (3, END)])
def test_one_draw_and_one_beam_is_speculative_decoding(gamma, end):
    for i, warping in enumerate([Warping(), Warping(0.7, 2), Warping(1.2, 0, 0.8)]):
        assert_exact(DSBD(gamma, 1, 1), drawn(3, i, warping=warping, end=end), law="target")
        assert_exact(DSBD(gamma, 1), drawn(3, i, warping=warping, end=end), law="target")


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
