"""What kernels guess of rules and of drafts that end in doubt: right, or of no consequence."""

import math
from dataclasses import replace

import pytest

from decoders import catalog, generate
from decoders.engine.kernels.codes import Rule
from decoders.methods.combination import RULES
from decoders.turn import Turn
from tests.decoders.engine.passes.test_foresight import (
    PROMPTS,
    WARPINGS,
    build_pair,
    told,
    watched,
)
from tests.decoders.engine.passes.test_rounds import OPTIONS, WAYS, decoded
from tests.needs import needs_kernels

pytestmark = needs_kernels
GUESSED = (
    "match", "block", "traversal", "typical", "typical(epsilon=0.02, delta=0.9)", "rollback",
    "fly(window=2)", "fly(window=2, threshold=0)", "cascade", "cascade(defer=opt)",
    "cascade(alpha=1)", "ensemble", "ensemble(weight=0.2)",
)  # fmt: skip


@pytest.fixture(scope="module")
def pair():
    return build_pair()


@pytest.mark.parametrize("warping", WARPINGS)
@pytest.mark.parametrize("rule", GUESSED)
def test_the_same_result_by_every_rule_that_kernels_guess(pair, rule, warping, monkeypatch):
    """And their guesses are right: each wrong one would cost up to twelve passes of the target."""
    with monkeypatch.context() as patch:
        made, right = watched(patch)
        found = [told(decoded(pair, p, 4, rule, **warping)) for p in PROMPTS]
    assert len(right) == len(made) > 100
    monkeypatch.setattr(Turn, "rounds_ahead", lambda self, most: None)
    assert found == [told(decoded(pair, p, 4, rule, **warping)) for p in PROMPTS]


@pytest.mark.parametrize("warping", WARPINGS[:3])
@pytest.mark.parametrize("rule", ["tokenwise", "block", "rollback", "ensemble"])
@pytest.mark.parametrize("doubt", [{"confidence": 0.2}, {"gate": 0.2}])
def test_drafts_that_end_in_doubt(pair, doubt, rule, warping, monkeypatch):
    """Kernels know where they do: in many rounds before the first token."""
    method, options = catalog["speculative"](rule=rule, **doubt), {**OPTIONS, **warping}
    with monkeypatch.context() as patch:
        made, right = watched(patch)
        results = [generate(pair, prompt, method, **options) for prompt in PROMPTS]
    # After a call that ends early, a single draft is guessed to be as long as the one before.
    assert 100 < len(made) < len(right) + (5 if rule == "rollback" else 1)
    drafted = [entry.drafted for result in results for entry in result.rounds]
    assert drafted.count(0) > 10
    assert {*drafted} == {0, 1, 2, 3, 4}
    monkeypatch.setattr(Turn, "rounds_ahead", lambda self, most: None)
    again = [generate(pair, prompt, method, **options) for prompt in PROMPTS]
    assert [told(r) for r in again] == [told(r) for r in results]


def test_the_kernels_know_every_rule_that_says_how_it_is_guessed():
    """And nobody has forgotten one: these rules can judge a drawn chain and are not guessed."""
    guesses = {name: rule().guess for name, rule in RULES.items()}
    assert {g.rule.upper() for g in guesses.values() if g} < {rule.name for rule in Rule}
    others = {name for name, guess in guesses.items() if not guess}
    assert others == {"kseq", "multiround", "multipath"}


@pytest.mark.parametrize("warping", WARPINGS[1:3])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "wrong",
    [
        {"rule": ("match", (), False)},
        {"rule": ("ensemble", (0.1,), True)},
        {"rule": ("nobody's", (), False)},
        {"doubt": (0.15, math.inf)},
        {"doubt": (0.0, math.inf)},
    ],
)
def test_guesses_by_another_rule_or_doubt_change_nothing(pair, wrong, way, warping, monkeypatch):
    """Here kernels end drafts that go on, and go on where drafts end."""
    rounds_ahead = Turn.rounds_ahead

    def changed(self, most):
        found = rounds_ahead(self, most)
        return found and replace(found, **wrong)

    monkeypatch.setattr(Turn, "rounds_ahead", changed)
    found = [told(decoded(pair, p, way=way, **warping)) for p in PROMPTS]
    monkeypatch.setattr(Turn, "rounds_ahead", lambda self, most: None)
    assert found == [told(decoded(pair, p, way=way, **warping)) for p in PROMPTS]
