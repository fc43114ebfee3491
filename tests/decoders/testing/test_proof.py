"""Bare functions that verify drafts: lossless ones pass, and every known mistake is refuted."""

import re

import numpy as np
import pytest
import torch

from decoders import InputError
from decoders.distribution import Whole
from decoders.testing import CHILDREN, prove
from tests.pairwise import EVERYWHERE, part

likeliest, without_replacement = CHILDREN["likeliest"], CHILDREN["without-replacement"]
PRIVATE = np.random.default_rng()


def over(p, q):
    """norm(max(0, p - q)), or p if nothing is left."""
    rest = (p - q).clamp(min=0)
    return rest if rest.sum() > 0 else p


def token_wise(p, q, tokens, source):
    for i, token in enumerate(tokens):
        if not source.accept(p[i, token] / q[i, token]):
            return i, source.draw(over(p[i], q[i]))
    return len(tokens), source.draw(p[-1])


def match(p, q, tokens, source):
    for i, token in enumerate(tokens):
        y = source.draw(p[i])
        if y != token:
            return i, y
    return len(tokens), source.draw(p[-1])


def stepped_back(p, q, tokens, source, capped):
    """Tests the whole draft, then steps back with the capped weights of block verification."""
    ratio, weights = 1.0, [1.0]
    for i, token in enumerate(tokens):
        change = (p[i, token] / q[i, token]).item()
        ratio *= change
        weights.append(min(1.0, weights[-1] * change))
    if source.accept(weights[-1] if capped else ratio):
        return len(tokens), source.draw(p[-1])
    for i in reversed(range(1, len(tokens))):
        rest = (weights[i] * p[i] - q[i]).clamp(min=0)
        if rest.sum() > 0 and source.accept(rest.sum() / (rest.sum() + 1 - weights[i])):
            return i, source.draw(rest)
    return 0, source.draw(over(p[0], q[0]))


def block(p, q, tokens, source):
    return stepped_back(p, q, tokens, source, capped=True)


def hierarchical(p, q, tokens, source):
    return stepped_back(p, q, tokens, source, capped=False)


def thrown_away(p, q, tokens, source):
    """A token whose own q is low is not tested."""
    low = [i for i, token in enumerate(tokens) if q[i, token] < 0.4]
    return token_wise(p, q, tokens[: low[0]] if low else tokens, source)


def stopped_after(p, q, tokens, source):
    """It is tested, and nothing after it."""
    low = [i for i, token in enumerate(tokens) if q[i, token] < 0.4]
    tested = tokens[: low[0] + 1] if low else tokens
    return token_wise(p[: len(tested) + 1], q, tested, source)


def children(parents):
    rows = range(len(parents) + 1)
    return {row: [i for i, parent in enumerate(parents, 1) if parent == row] for row in rows}


def multi_round(p, q, tokens, parents, source):
    below, row = children(parents), 0
    while below[row]:
        rest = p[row]
        for child in below[row]:
            if source.accept(rest[tokens[child - 1]] / q[row, tokens[child - 1]]):
                row = child
                break
            rest = over(rest, q[row])
            rest = rest / rest.sum()
        else:
            return row, source.draw(rest)
    return row, source.draw(p[row])


def walk(p, q, tokens, parents, source):
    """The target draws; while it draws a child, go there."""
    below, row = children(parents), 0
    while True:
        y = source.draw(p[row])
        there = [child for child in below[row] if tokens[child - 1] == y]
        if not there:
            return row, y
        row = there[0]


def traversal(after, replacement=True):
    """Traversal verification; `after(S, a, q)` is a node's weight after a child was refused."""

    def verify(p, q, tokens, parents, source):
        below, weight = children(parents), {0: 1.0}
        while True:
            row = 0
            while below[row]:
                child = below[row][0]
                token = tokens[child - 1]
                if child not in weight:
                    weight[child] = min(1.0, weight[row] * (p[row, token] / q[row, token]).item())
                row = child
            if row == 0 or source.accept(weight[row]):
                return row, source.draw(p[row])
            parent, token = parents[row - 1], tokens[row - 1]
            below[parent].pop(0)
            rest = (weight[parent] * p[parent] - q[parent]).clamp(min=0)
            mass = rest.sum().item()
            if not replacement:
                q[parent, token] = 0
            if parent:
                weight[parent] = after(mass, weight[parent], q[parent]) if mass else 0.0
            if mass:
                p[parent] = rest / mass
            if not replacement and q[parent].sum() > 0:
                q[parent] /= q[parent].sum()

    return verify


def right(mass, a, q):
    return mass / (mass + 1 - a)


def share_of_the_rest(mass, a, q):
    """As one public implementation has it."""
    left = q.sum().item()
    return min(1.0, mass / left) if left else 1.0


def rounded_draws(source, q, count):
    mass = q.mass.bfloat16().double()
    return source.draw(Whole(mass / mass.sum()), count)


TREES = ((2,), (1, 2), (2, 1))


@pytest.mark.parametrize("verify", part([match, block, stopped_after]))
def test_a_lossless_rule_for_chains_passes(verify):
    proof = prove(verify, shapes=((1,), (1, 1)))
    assert proof.lossless, proof
    assert "Lossless on all" in str(proof)
    assert proof.accepted <= proof.most + 1e-12


def test_block_verification_accepts_the_most_that_is_possible():
    """That is the optimum of the linear programme; token by token less is accepted."""
    best, other = (prove(verify, shapes=((1,), (1, 1))) for verify in (block, token_wise))
    assert best.accepted == pytest.approx(best.most, abs=1e-12)
    assert other.accepted < other.most - 0.005
    assert best.tables > 200


@pytest.mark.parametrize(("verify", "sample"), part([
    (multi_round, None),
    (traversal(right), None),
    (traversal(right, replacement=False), without_replacement),
    (walk, likeliest),
]))  # fmt: skip
def test_a_lossless_rule_for_trees_passes(verify, sample):
    sizes = (2, 3) if EVERYWHERE else (2,)
    proof = prove(verify, shapes=TREES, sizes=sizes, **({"sample": sample} if sample else {}))
    assert proof.lossless, proof
    assert proof.most is None


def test_traversal_with_the_share_of_the_rest_is_refuted():
    proof = prove(traversal(share_of_the_rest))
    assert not proof.lossless
    assert proof.counterexample.distance > 1e-3


def test_a_draft_tested_whole_and_stepped_back_capped_is_refuted():
    """Hierarchical speculative decoding, as its public code tests a draft."""
    proof = prove(hierarchical)
    assert proof.counterexample.shape == (1, 1)  # one token is the same either way
    assert proof.counterexample.table.V == 2
    assert proof.accepted > proof.most + 1e-3
    assert "Not lossless" in str(proof)


def test_chances_of_p_over_q_for_chosen_children_are_refuted():
    assert not prove(multi_round, shapes=TREES, sample=likeliest).lossless


@pytest.mark.parametrize(
    ("verify", "options"), [(thrown_away, {}), (token_wise, {"sample": rounded_draws})]
)
def test_a_q_that_was_not_drawn_from_is_refuted(verify, options):
    proof = prove(verify, **options)
    assert not proof.lossless
    if options:
        assert proof.most is None


def test_the_smallest_counterexample_is_printed_as_numbers():
    def greedy(p, q, tokens, source):
        for i, token in enumerate(tokens):
            if p[i, token] < 0.5:
                return i, source.draw(p[i])
        return len(tokens), source.draw(p[-1])

    assert str(prove(greedy)) == (
        "Not lossless. The smallest counterexample:\n"
        "a draft of 1, 2 tokens\n"
        "target p = 1/2, 1/2 everywhere\n"
        "draft  q = 0, 1 everywhere\n"
        "a text begins with 0 with probability 0.000000; the target's is 0.500000\n"
        "total variation 0.500000\n"
        "accepted draft tokens 1.0000; a lossless rule can accept 0.5000 at most"
    )


def test_a_rule_that_is_wrong_for_scarce_tokens_alone_is_refuted():
    """No table had a q between 0 and 1/11."""

    def kept(p, q, tokens, source):
        for i, token in enumerate(tokens):
            if q[i, token] > 0.05 and not source.accept(p[i, token] / q[i, token]):
                return i, source.draw(over(p[i], q[i]))
        return len(tokens), source.draw(p[-1])

    proof = prove(kept)
    assert not proof.lossless
    assert "1/1000" in str(proof)


def test_a_small_difference_is_printed():
    """It said "with probability 0.000000; the target's is 0.000000"."""

    def bent(p, q, tokens, source):
        rest = p[0] + 3e-8 * (p[0] == 0)
        return 0, source.draw(rest / rest.sum())

    out, wanted = re.search("probability (.*); the target's is (.*)", str(prove(bent))).groups()
    assert abs(float(out) - float(wanted)) == pytest.approx(3e-8, rel=0.1)


def torch_draw(p, q, tokens, source):
    return 0, int(torch.multinomial(p[0], 1))


def numpy_accept(p, q, tokens, source):
    if np.random.random() < p[0, tokens[0]] / q[0, tokens[0]]:
        return 1, source.draw(p[1])
    return 0, source.draw(over(p[0], q[0]))


def rare(p, q, tokens, source):
    """Right but for one time in a million."""
    return 0, source.draw(p[0]) * (np.random.random() > 1e-6)


def private_length(p, q, tokens, source):
    """The number of its draws from the source depends on another one."""
    for _ in range(PRIVATE.integers(4)):
        source.draw(p[0])
    return 0, source.draw(p[0])


def remembering():
    calls = iter(range(10**9))
    return lambda p, q, tokens, source: (0, next(calls) // 7 % 2)


@pytest.mark.parametrize("verify", [torch_draw, numpy_accept, rare, private_length, remembering()])
def test_a_function_that_draws_elsewhere_is_told_so_and_not_called_lossy(verify):
    for _ in range(10):
        with pytest.raises(InputError, match="draws from elsewhere than `source`"):
            prove(verify, shapes=((1,),))


@pytest.mark.parametrize(("verify", "says"), [
    (lambda p: 0, "called as verify"),
    (lambda p, q, tokens, source: (2, 0), "The function returned 2, 0"),
    (lambda p, q, tokens, source: None, "The function failed with p = .*TypeError"),
    (lambda p, q, tokens, source: (0, source.draw(p[0] - p[0])), "which is no distribution"),
    (lambda p, q, tokens, source: source.accept(float("nan")), "not a number"),
])  # fmt: skip
def test_a_function_that_cannot_be_used_is_one_sentence(verify, says):
    with pytest.raises(InputError, match=says) as refusal:
        prove(verify)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("options", "says"), [
    ({"sizes": ()}, "There is no table to try; give small sizes"),
    ({"sizes": (2, "3")}, "a size of the vocabulary must be a whole number of 1 or more, not '3'"),
    ({"shapes": [()]}, "each layer of a shape, .* must be a whole number of 1 or more, not None"),
    ({"shapes": (1, 1)}, "each layer of a shape, as in shapes=.* not None"),
    ({"sample": "likeliest"}, "sample must be a function, such as .*CHILDREN"),
    ({"limit": None}, "limit must be a whole number of 1 or more"),
])  # fmt: skip
def test_options_that_leave_nothing_to_enumerate_are_one_sentence(options, says):
    """They were a TypeError, or a division by zero, from within the enumeration."""
    with pytest.raises(InputError, match=says):
        prove(lambda p, q, tokens, source: pytest.fail("it was called"), **options)
