"""Speculative beam search: beam search's own beams, scores and end, in no more passes."""

from dataclasses import dataclass
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoders.methods.baselines import Search, SpeculativeBeamSearch
from decoders.request import SeededSource
from decoders.testing.oracle import decode
from decoders.testing.situations import Drawn, Path, Situation
from decoders.trace import Fate
from tests.pairwise import EVERYWHERE
from tests.pieces import HeadTable

CASES = 2000 if EVERYWHERE else 100


@dataclass(frozen=True)
class Coarse:
    """A model of few different probabilities, so that many texts score the same.

    Attributes:
        V: vocabulary size
        seed: of the generator
        levels: how many different logits there are
        other: a model of which this is a noisy copy, and how often it differs from it
    """

    V: int
    seed: int
    levels: int
    other: "Coarse | None" = None
    noise: float = 0.0

    def __call__(self, path: Path) -> torch.Tensor:
        generator = np.random.default_rng([self.seed, *path])
        own = torch.tensor(generator.integers(0, self.levels, self.V), dtype=torch.float64)
        if self.other is None or generator.random() < self.noise:
            return own
        return self.other(path)


@st.composite
def situations(draw) -> Situation:
    V = draw(st.integers(2, 6))
    target = Coarse(V, draw(st.integers(0, 10**6)), draw(st.integers(1, 5)))
    noise = draw(st.sampled_from((0.0, 0.1, 0.4, 1.0)))
    head = draw(st.booleans())
    return Situation(
        target,
        HeadTable(V, 1) if head else Coarse(V, 7, 4, target, noise),
        budget=draw(st.integers(1, 12)),
        end=frozenset(draw(st.sets(st.integers(0, V - 1), max_size=min(3, V - 1)))),
        features=(Drawn(2, 7),) if head else (),
    )


@st.composite
def methods(draw) -> SpeculativeBeamSearch:
    beams = draw(st.integers(1, 8))
    return SpeculativeBeamSearch(
        beams,
        draw(st.sampled_from((1.0, 0.0, 2.0, -1.0))),
        draw(st.sampled_from((False, True, "never"))),
        draw(st.sampled_from(("auto", 1, 2, 3, 5))),
        draw(st.sampled_from((None, beams, beams + 1, 2 * beams))),
        draw(st.sampled_from(("model", "head"))),
    )


def searched(method, situation, **options):
    """The request after a search, and all beams of each layer with their scores."""
    layers, layer = [], Search.layer

    def watched(search, readings):
        beams = layer(search, readings)
        texts = [(tuple(search.request.tree.new_tokens(b.node)), b.score) for b in beams]
        done = [(tuple(search.request.tree.new_tokens(b.node)), b.score) for b in search.done]
        layers.append((texts, done))
        return beams

    with mock.patch.object(Search, "layer", watched):
        r = decode(method, situation, SeededSource(0), **options)
    return r, layers


@given(methods(), situations(), st.sampled_from([None, lambda tokens: tokens[-2:] == [0, 1]]))
@settings(max_examples=CASES)
def test_beams_scores_and_end_are_those_of_beam_search(method, situation, stops):
    """To the last bit: the layers are the same code, on readings of other passes."""
    ours, layers = searched(method, situation, stops=stops)
    plain, expected = searched(method.plain, situation, stops=stops)
    assert layers == expected
    assert (ours.output, ours.finished) == (plain.output, plain.finished)
    assert ours.ledger.target_calls <= plain.ledger.target_calls


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_perfect_draft_saves_all_but_one_pass_in_length_and_one(length):
    table = Drawn(5, 1)
    situation = Situation(table, table, budget=12)
    method = SpeculativeBeamSearch(3, draft_length=length)
    r = decode(method, situation, SeededSource(0))
    assert r.ledger.target_calls == 12 // (length + 1)
    assert r.ledger.draft_calls == 12 // (length + 1) * length
    for entry in r.rounds:
        assert entry.accepted == entry.drafted == 3 * length
        own = [t for t in entry.trials if t.fate != Fate.ACCEPTED]
        assert {t.fate for t in own} == {Fate.SEARCHED}


@pytest.mark.parametrize("width", [2, 4, 8])
def test_auto_tries_one_layer_at_first(width):
    """It tried two and then up to four: passes of 12 to 20 rows where four beams need four.

    Where wide passes cost most, those two rounds took a twelfth of a text of 96 tokens.
    """
    situation = Situation(Drawn(50, 1, 3.0), Drawn(50, 2, 3.0), budget=10)
    r = decode(SpeculativeBeamSearch(width), situation, SeededSource(0))
    assert r.rounds[0].drafted == width
    assert r.rounds[1].drafted <= width
