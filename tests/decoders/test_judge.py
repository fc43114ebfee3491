"""One draft judged by many rules: with the decoders' own code and the same random numbers."""

import re

import numpy as np
import pytest
import torch

import decoders
from decoders import Fate, InputError, judge
from decoders.distribution import Warping
from decoders.methods.named import RULES
from decoders.request import SeededSource
from decoders.testing import drawn
from decoders.testing.oracle import decode
from decoders.testing.proof import Everywhere, Table, most_accepted
from decoders.testing.situations import warp
from decoders.trace import DRAFTED
from tests.pairwise import part
from tests.pieces import distributions

P, Q = [[1 / 3, 2 / 3]] * 3, [[2 / 3, 1 / 3]] * 3


def by_rule(*args, **options):
    return {each.rule.name: each for each in judge(*args, **options)}


def rows(seed: int, length: int):
    """p, q and a draft that q can have drawn."""
    pairs = [distributions(seed + i) for i in range(length + 1)]
    p, q = (torch.stack(each) for each in zip(*pairs, strict=True))
    return p, q, q.argmax(-1).tolist()[:length]


def test_the_example_of_block_verification():
    """Its paper's example: 10/9 tokens kept token by token, 11/9 as a block, 12/9 at most."""
    kept = {"tokenwise": 0.0, "block": 0.0, "match": 0.0}
    for first in (0, 1):
        for second in (0, 1):
            chance = Q[0][first] * Q[1][second]
            for name, each in by_rule(P, Q[:2], [first, second], list(kept)).items():
                kept[name] += chance * each.expected
    assert kept["tokenwise"] == pytest.approx(10 / 9)
    assert kept["block"] == pytest.approx(11 / 9)
    assert kept["match"] == pytest.approx(4 / 9 + 16 / 81)
    most = most_accepted(Table(2, *(Everywhere(tuple(x)) for x in (P[0], Q[0]))), 2)
    assert float(sum(most)) == pytest.approx(11 / 9)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", part([1, 4]))
def test_chances_are_the_mean_over_random_numbers(rule, seed):
    p, q, tokens = rows(seed, 8 if rule == "fly" else 3)
    (told,) = judge(p, q, tokens, [rule])
    counts = [judge(p, q, tokens, [rule], seed=i)[0].kept for i in range(60)]
    for place, chance in enumerate(told.chances):
        share = sum(kept > place for kept in counts) / len(counts)
        assert share == pytest.approx(chance, abs=4 * (chance * (1 - chance) / 60) ** 0.5 + 1e-9)


@pytest.mark.parametrize("name", ["speculative", "block", "typical", "bild", "cascade", "ensemble"])
@pytest.mark.parametrize("warping", [Warping(0.7, 2), Warping(0)])
def test_a_judgement_is_what_the_decoder_did_in_its_round(name, warping):
    """With the numbers that a round drew, the decoder's own rule keeps what it kept there."""
    several = 0
    for seed in range(20):
        situation = drawn(3, seed, budget=5, warping=warping)
        more = {"fallback": 0.0} if name == "bild" else {}
        method = decoders.catalog[name](draft_length=3, **more)
        r = decode(method, situation, SeededSource(seed))
        entry = r.rounds[0]
        draft = [t for t in entry.trials if t.fate in DRAFTED]
        path = situation.prompt
        p, q, raw = [], [], []
        for token in [*(t.token for t in draft), None]:
            logits = situation.target(path)
            raw.append(logits.softmax(-1))
            p.append(torch.tensor(warp(logits, warping)))
            q.append(torch.tensor(warp(situation.draft(path), warping)))
            path = (*path, token)
        (told,) = judge(
            torch.stack(p), torch.stack(q), [t.token for t in draft], [method.parts[1]],
            raw=torch.stack(raw), uniforms=[t.u for t in draft],
        )  # fmt: skip
        assert told.kept == sum(t.fate == Fate.ACCEPTED for t in draft)
        several += 0 < told.kept < len(draft)
    assert several or warping.temperature == 0


def test_on_a_chain_traversal_is_block_verification_and_kseq_is_token_by_token():
    for seed in range(4):
        found = by_rule(*rows(seed, 3), seed=seed)
        for one, other in (
            ("block", "traversal"), ("block", "multipath"), ("tokenwise", "kseq"),
            ("tokenwise", "multiround"),
        ):  # fmt: skip
            assert found[one].kept == found[other].kept
            assert found[one].chances == pytest.approx(found[other].chances)


def test_a_rule_that_does_not_fit_is_left_out_or_said():
    whole = by_rule(P, Q, [0, 1])
    assert set(whole) == set(RULES) - {"fly"}
    assert set(whole) - set(by_rule(P, Q[:2], [0, 1])) == {"cascade", "ensemble"}
    copied = by_rule(P, None, [0, 1])
    assert set(copied) == {
        "tokenwise", "match", "block", "traversal", "multipath", "typical", "rollback", "mtad",
    }  # fmt: skip
    assert copied["mtad"].trials[0].q == 1


@pytest.mark.parametrize(("arguments", "words"), [
    ((P, Q[:2], [0]), "p has 3 rows; a draft of 1 tokens needs 2"),
    ((P, [[1.0, 0.0]] * 2, [0, 1]), "Token 1 at place 2 has q = 0"),
    ((P, [[0.2, 0.3, 0.5]] * 2, [0, 1]), "must be about one vocabulary"),
    (([[1, 1]] * 3, Q, [0, 1]), "p must be rows of probabilities"),
    ((P, Q, [0, 7]), "Token id 7 is out of range"),
    ((P, Q, [0, 1], ["blok"]), "there is no rule 'blok': did you mean 'block'?"),
    ((P, Q, [0, 1], 5), "Rules are given as a list of names"),
    ((P, Q[:2], [0, 1], ["cascade"]), "needs q after the draft too"),
    ((P, None, [0, 1], ["kseq"]), "cannot judge a chain of tokens without probabilities"),
])  # fmt: skip
def test_bad_input_gets_one_sentence(arguments, words):
    with pytest.raises(InputError, match=re.escape(words)) as told:
        judge(*arguments)
    assert "\n" not in str(told.value)
    for uniforms in (["x"], None, 0.5, [0.5] * 3):
        with pytest.raises(InputError, match="uniforms must be a list with a number from 0 to 1"):
            judge(P, Q, [0, 1], uniforms=uniforms)
    assert judge(P, Q, [0, 1], uniforms=np.array([0.5]))
    with pytest.raises(InputError, match="seed must be a whole number"):
        judge(P, Q, [0, 1], seed="x")
