"""One draft token judged: drawn distributions, every outcome."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoders.distribution import point_mass
from decoders.methods.rules import Node, Tokenwise
from decoders.testing import mutant
from decoders.testing.oracle import outcomes
from decoders.testing.situations import variation
from tests.pieces import FORMS, reading, small


@st.composite
def pairs(draw):
    """p and q over one vocabulary, with zeros, and sometimes equal."""
    size = draw(st.integers(2, 6))
    weights = st.lists(
        st.sampled_from([0, 0, 1, 2, 3, 7, 0.01, 100]), min_size=size, max_size=size
    ).filter(any)
    p = torch.tensor(draw(weights), dtype=torch.float64)
    q = (
        p
        if draw(st.booleans()) and draw(st.booleans())
        else torch.tensor(draw(weights), dtype=torch.float64)
    )
    return p / p.sum(), q / q.sum()


def judged(rule, p, q, certain=None):
    """The law of the token that comes out, and the chance that it is the drafted one.

    The same in any mixture of forms."""
    q = p if q is None else q
    found = [
        _judged(rule, P(p), Q(q), reading(p), certain)
        for P in FORMS.values()
        for Q in FORMS.values()
    ]
    for law, kept in found[1:]:
        assert variation(law, found[0][0]) < 1e-12
        assert kept == pytest.approx(found[0][1], abs=1e-12)
    return found[0]


def _judged(rule, p, q, target, certain):
    def run(source):
        token = source.draw(q)[0] if certain is None else certain
        pick = rule.pick(Node(p, None if certain is not None else q, [token], target), source)
        return (token, True) if pick.kept else (source.draw(pick.rest)[0], False)

    law, kept = Counter(), 0.0
    for probability, (token, was_kept) in outcomes(run):
        law[token] += probability
        kept += probability * was_kept
    return law, kept


@given(pairs())
def test_the_token_has_the_law_p_and_is_accepted_with_sum_min(pq):
    p, q = pq
    law, kept = judged(Tokenwise(), p, q)
    assert variation(law, dict(enumerate(p.tolist()))) < 1e-12
    assert kept == pytest.approx(torch.minimum(p, q).sum().item(), abs=1e-12)


@given(pairs(), st.integers(0, 1))
def test_a_certain_draft_is_accepted_with_p_of_it(pq, token):
    p, _ = pq
    law, kept = judged(Tokenwise(), p, None, certain=token)
    assert variation(law, dict(enumerate(p.tolist()))) < 1e-12
    assert kept == pytest.approx(p[token].item(), abs=1e-12)


@given(pairs(), st.floats(0.05, 0.95))
def test_lenience_has_the_law_of_appendix_a5(pq, lenience):
    """min(q, p/l) is kept, the rest is drawn from norm(max(0, p - l q))."""
    p, q = (x.numpy() for x in pq)
    kept = np.minimum(q, p / lenience)
    rest = np.maximum(0, p - lenience * q)
    expected = kept + (1 - kept.sum()) * (rest / rest.sum() if rest.sum() > 0 else p)
    law, _ = judged(Tokenwise(lenience), *pq)
    assert variation(law, dict(enumerate(expected))) < 1e-12


def accepts_at_temperature_0(rule, probs, token, lenience=0.5):
    probs = torch.tensor(probs, dtype=torch.float64)
    p, q = point_mass(int(probs.argmax())), point_mass(token)
    (outcome,) = outcomes(
        lambda s: rule(lenience).pick(Node(p, q, [token], reading(probs), greedy=True), s)
    )
    return outcome[1]


LENIENT = [
    ([0.5, 0.3, 0.2], 1, True),
    ([0.5, 0.2, 0.3], 1, False),
    ([0.58, 0.3, 0.12], 1, True),
    ([0.5, 0.3, 0.2], 0, True),
]


@pytest.mark.parametrize(("probs", "token", "accepted"), LENIENT)
def test_lenience_at_temperature_0_accepts_what_is_nearly_the_likeliest(probs, token, accepted):
    pick = accepts_at_temperature_0(Tokenwise, probs, token)
    assert pick.kept is accepted
    if not accepted:
        assert pick.rest.mass == {0: 1}


def test_the_printed_inequality_of_lenience_is_caught():
    """The paper prints it the wrong way round.

    Source:
        Leviathan et al. 2023 (arXiv 2211.17192), appendix A.5
    """
    wrong = mutant(Tokenwise, ("gap >= self.lenience", "gap <= self.lenience"))
    assert [accepts_at_temperature_0(wrong, p, t).kept for p, t, _ in LENIENT] != [
        a for *_, a in LENIENT
    ]


def test_the_trace_holds_the_numbers_compared():
    p, q = torch.tensor([0.2, 0.8]), torch.tensor([0.6, 0.4])
    for probability, pick in outcomes(
        lambda s: Tokenwise().pick(Node(small(p), small(q), [0], reading(p)), s)
    ):
        ((p_token, q_token, accept, u),) = pick.tests
        assert (p_token, q_token, accept) == (
            pytest.approx(0.2),
            pytest.approx(0.6),
            pytest.approx(1 / 3),
        )
        assert pick.kept == (u < accept)
        assert probability == pytest.approx(1 / 3 if pick.kept else 2 / 3)
