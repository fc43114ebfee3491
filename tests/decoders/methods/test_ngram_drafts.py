import itertools

import pytest
import torch

from decoders.distribution import Warping, warp
from decoders.methods.copies import NGram
from tests.pieces import commit, propose, request

V, S = 4, 0.5


def rows(r, table, nodes=None) -> list[list[float]]:
    q, passes = propose(r, table.predict(r, nodes or [r.tip]))
    assert passes == 0
    return [[row[x] for x in range(r.vocabulary)] for row in q]


def unigram(text: list[int]) -> list[float]:
    return [(text.count(x) + S / V) / (len(text) + S) for x in range(V)]


def bigram(texts: list[list[int]], y: int) -> list[float]:
    pairs = [pair for text in texts for pair in itertools.pairwise(text)]
    prior = unigram([t for text in texts for t in text])
    total = sum(a == y for a, _ in pairs)
    return [(pairs.count((y, x)) + S * prior[x]) / (total + S) for x in range(V)]


def test_single_tokens_are_counted_over_prompt_output_and_references():
    r = request((0, 1, 1), vocabulary=V, references=[(3, 3)])
    table = NGram(r, S, pairs=False)
    assert rows(r, table)[0] == pytest.approx(unigram([3, 3, 0, 1, 1]))
    commit(r, (2, 1))
    assert rows(r, table)[0] == pytest.approx(unigram([3, 3, 0, 1, 1, 2, 1]))


def test_pairs_lean_on_single_tokens_and_never_reach_over_the_end_of_a_text():
    texts = [[3, 1], [0, 1, 2, 1]]
    r = request(texts[1], vocabulary=V, references=[texts[0]])
    table = NGram(r, S, pairs=True)
    assert rows(r, table)[0] == pytest.approx(bigram(texts, 1))
    for tokens in ([2], [1, 0]):
        commit(r, tokens)
        texts[1] += tokens
        assert rows(r, table)[0] == pytest.approx(bigram(texts, tokens[-1]))


def test_what_is_drafted_is_not_counted():
    r = request((0, 1), vocabulary=V)
    table = NGram(r, S, pairs=True)
    node = r.tree.add(r.tip, 2)
    assert rows(r, table, [node]) == rows(r, table, [node])
    assert rows(r, table, [node])[0] == pytest.approx(bigram([[0, 1]], 2))


def test_it_is_warped_like_every_model():
    warping = Warping(0.5, 2, 0.9)
    r = request((0, 1, 1, 0, 2), vocabulary=V, warping=warping)
    plain = torch.tensor(bigram([[0, 1, 1, 0, 2]], 2), dtype=torch.float64)
    assert rows(r, NGram(r, S, pairs=True))[0] == pytest.approx(warp(plain.log(), warping).tolist())


@pytest.mark.parametrize("pairs", [False, True])
def test_every_token_has_a_chance(pairs):
    r = request((0,), vocabulary=1000)
    (q,) = rows(r, NGram(r, 1e-6, pairs))
    assert min(q) > 0
    assert sum(q) == pytest.approx(1)
