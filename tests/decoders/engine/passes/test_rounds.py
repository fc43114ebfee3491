"""Rounds made in advance: fewer calls of the kernels, and the same tokens, traces and counts."""

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch

from decoders import ModelPair, catalog, generate
from decoders.engine.kernels.codes import Rule
from decoders.engine.kernels.loading import kernels
from decoders.engine.passes.packed import PackedPasses
from decoders.engine.passes.room import Room
from decoders.ledger import Ledger
from decoders.methods.combination import RULES as RULES_BY_NAME
from decoders.trace import Round, Trials
from decoders.turn import Turn
from tests.decoders.engine.passes.test_foresight import (
    PROMPTS,
    WARPINGS,
    build_pair,
    halved,
    told,
    watched,
)
from tests.models import build

pytestmark = pytest.mark.skipif(kernels() is None, reason="no kernels here")
RULES = (
    "match", "block", "traversal", "fly(window=2)", "fly(window=2, threshold=0)", "cascade",
    "cascade(defer=opt)", "cascade(alpha=1)", "ensemble", "ensemble(weight=0.2)",
)  # fmt: skip
OPTIONS = {"max_new_tokens": 40, "ignore_eos": True, "seed": 5}


@pytest.fixture(scope="module")
def pair():
    return build_pair()


@pytest.fixture
def made(monkeypatch):
    """The target's passes of each call that made rounds."""
    seen, rounds = [], PackedPasses.rounds

    def counted(self, *args):
        found = rounds(self, *args)
        if found:
            seen.append(found[0].passes)
        return found

    monkeypatch.setattr(PackedPasses, "rounds", counted)
    return seen


def decoded(pair, prompt, length=3, rule="tokenwise", **options):
    method = catalog["speculative"](draft_length=length, rule=rule)
    return generate(pair, prompt, method, **{**OPTIONS, **options})


@pytest.mark.parametrize("warping", WARPINGS)
@pytest.mark.parametrize("length", [1, 2, 5])
def test_the_same_result(pair, length, warping, made, monkeypatch):
    found = [told(decoded(pair, p, length, **warping)) for p in PROMPTS]
    assert sum(made) > 0
    monkeypatch.setattr(Turn, "rounds_ahead", lambda self, most: None)
    made.clear()
    assert found == [told(decoded(pair, p, length, **warping)) for p in PROMPTS]
    assert not made


@pytest.mark.parametrize("warping", WARPINGS)
@pytest.mark.parametrize("rule", RULES)
def test_the_same_result_by_every_rule_that_kernels_guess(pair, rule, warping, monkeypatch):
    """And their guesses are right: each wrong one would cost up to twelve passes of the target."""
    with monkeypatch.context() as patch:
        made, right = watched(patch)
        found = [told(decoded(pair, p, 4, rule, **warping)) for p in PROMPTS]
    assert len(right) == len(made) > 100
    monkeypatch.setattr(Turn, "rounds_ahead", lambda self, most: None)
    assert found == [told(decoded(pair, p, 4, rule, **warping)) for p in PROMPTS]


@pytest.mark.parametrize("warping", WARPINGS[:3])
@pytest.mark.parametrize("rule", ["tokenwise", "block", "ensemble"])
@pytest.mark.parametrize("doubt", [{"confidence": 0.2}, {"gate": 0.2}])
def test_drafts_that_end_in_doubt(pair, doubt, rule, warping, monkeypatch):
    """Kernels know when they do; of many rounds it is at once."""
    method, options = catalog["speculative"](rule=rule, **doubt), {**OPTIONS, **warping}
    with monkeypatch.context() as patch:
        made, right = watched(patch)
        results = [generate(pair, prompt, method, **options) for prompt in PROMPTS]
    assert len(right) == len(made) > 100
    drafted = [entry.drafted for result in results for entry in result.rounds]
    assert drafted.count(0) > 10
    assert {*drafted} == {0, 1, 2, 3, 4}
    monkeypatch.setattr(Turn, "rounds_ahead", lambda self, most: None)
    again = [generate(pair, prompt, method, **options) for prompt in PROMPTS]
    assert [told(r) for r in again] == [told(r) for r in results]


def test_the_kernels_know_every_rule_that_says_how_it_is_guessed():
    """And nobody has forgotten one: these rules can judge a drawn chain and are not guessed."""
    guesses = {name: rule().guess for name, rule in RULES_BY_NAME.items()}
    assert {g.rule.upper() for g in guesses.values() if g} < {rule.name for rule in Rule}
    others = {name for name, guess in guesses.items() if not guess}
    assert others == {"kseq", "multiround", "multipath", "typical", "rollback"}


@pytest.mark.parametrize("rule", ["kseq", "multiround"])
def test_exact_rules_keep_the_same_tokens_at_temperature_0(pair, rule, made, monkeypatch):
    found = told(decoded(pair, PROMPTS[0], rule=rule, temperature=0))
    assert sum(made) > 0
    monkeypatch.setattr(Turn, "rounds_ahead", lambda self, most: None)
    assert found == told(decoded(pair, PROMPTS[0], rule=rule, temperature=0))


@pytest.mark.parametrize("wrong", [1.0, 0.2])
@pytest.mark.parametrize("warping", WARPINGS[1:])
@pytest.mark.parametrize("rule", ["tokenwise", "block", "ensemble"])
def test_guesses_that_are_wrong_change_nothing(pair, rule, warping, wrong, made, monkeypatch):
    """Here some of the uniform numbers are not those that draw and test: the kernels give the cache
    rows of tokens that stay to others."""
    rounds_ahead, random = Turn.rounds_ahead, Random(3)

    def changed(self, most):
        found = rounds_ahead(self, most)
        return found and replace(
            found, numbers=[1 - n if random.random() < wrong else n for n in found.numbers]
        )

    monkeypatch.setattr(Turn, "rounds_ahead", changed)
    found = [told(decoded(pair, p, rule=rule, **warping)) for p in PROMPTS]
    assert sum(made) > 0
    monkeypatch.setattr(Turn, "rounds_ahead", lambda self, most: None)
    assert found == [told(decoded(pair, p, rule=rule, **warping)) for p in PROMPTS]


@pytest.mark.parametrize("warping", WARPINGS)
def test_guesses_at_another_temperature_change_nothing(pair, warping, made, monkeypatch):
    """At temperature 0 numbers alone make no wrong guess."""
    rounds_ahead, random = Turn.rounds_ahead, Random(3)

    def changed(self, most):
        found = rounds_ahead(self, most)
        numbers = [random.random() for _ in found.numbers]
        return replace(found, temperature=1.5, numbers=numbers)

    monkeypatch.setattr(Turn, "rounds_ahead", changed)
    found = [told(decoded(pair, p, **warping)) for p in PROMPTS]
    assert sum(made) > 0
    monkeypatch.setattr(Turn, "rounds_ahead", lambda self, most: None)
    assert found == [told(decoded(pair, p, **warping)) for p in PROMPTS]


@pytest.mark.parametrize("length", [1, 3])
def test_guesses_are_nearly_always_right(pair, length, monkeypatch):
    """A wrong one costs up to twelve passes of the target."""
    made, right = watched(monkeypatch)
    for warping in WARPINGS:
        for prompt in PROMPTS:
            decoded(pair, prompt, length, **warping)
    assert len(right) > 0.99 * len(made) > 200


@pytest.mark.parametrize("warping", [{"temperature": 0}, {}])
@pytest.mark.parametrize("rule", ["tokenwise", "ensemble"])
def test_a_text_that_ends_among_guesses(rule, warping, made, monkeypatch):
    """Whatever token ends it, drafted or not, early in a round or late."""
    pair = build_pair()
    options = {"rule": rule, **warping}
    whole = decoded(pair, PROMPTS[0], **options).tokens
    for end in dict.fromkeys(whole):
        pair.target.generation_config.eos_token_id = end
        found = decoded(pair, PROMPTS[0], ignore_eos=False, **options)
        assert found.tokens == whole[: whole.index(end) + 1]
        with monkeypatch.context() as patch:
            patch.setattr(Turn, "rounds_ahead", lambda self, most: None)
            again = decoded(pair, PROMPTS[0], ignore_eos=False, **options)
        assert told(found) == told(again)
    assert sum(made) > 0


@pytest.mark.parametrize("length", range(2, 14))
def test_a_text_that_is_stopped_among_guesses(pair, length, made, monkeypatch):
    stop = {"stop": lambda request, tokens: len(tokens) >= length}
    found = told(decoded(pair, PROMPTS[0], temperature=0, **stop))
    assert made
    monkeypatch.setattr(Turn, "rounds_ahead", lambda self, most: None)
    assert found == told(decoded(pair, PROMPTS[0], temperature=0, **stop))


def test_a_call_that_is_cancelled_between_two_calls_of_the_kernels(pair, made):
    whole = decoded(pair, PROMPTS[0], temperature=0).tokens
    made.clear()
    result = decoded(pair, PROMPTS[0], temperature=0, cancel=lambda: bool(made))
    assert result.finished == "cancelled"
    assert 0 < len(result.tokens) < len(whole)
    assert result.tokens == whole[: len(result.tokens)]


def test_the_time_of_a_call_is_in_its_rounds(pair):
    result = decoded(pair, PROMPTS[0], temperature=0)
    spent = sum(r.draft_seconds + r.verify_seconds for r in result.rounds)
    assert spent == pytest.approx(result.metrics.seconds, rel=0.01)
    assert all(r.draft_seconds > 0 for r in result.rounds if r.drafted)


def test_time_is_shared_by_what_passes_read():
    """Else a race would show the tokens of many rounds at once."""
    ledger, rounds = Ledger(clock=iter([0.0, 6.0, 6.0, 6.0]).__next__), []
    ledger.start()
    ledger.charge_pass("target", 2.0, [("target", 2.0, 1), ("draft", 1.0, 2)])
    for i in range(2):
        if i:
            ledger.charge_ahead("draft", 2)
            ledger.charge_ahead("target", 1)
        rounds.append(Round(i, Trials.of([])))
        ledger.settle(rounds[-1])
    assert [(r.draft_seconds, r.verify_seconds) for r in rounds] == [(0.0, 2.0), (2.0, 2.0)]


def test_none_are_made_where_they_would_be_wrong(made):
    pair = build_pair()
    for rule in ("kseq", "typical"):  # nobody guesses what they keep
        decoded(pair, PROMPTS[0], rule=rule)
    pair.target.generation_config.repetition_penalty = 1.2
    decoded(pair, PROMPTS[0], penalties=True)
    decoded(pair, PROMPTS[0], top_k=300)
    decoded(pair, PROMPTS[0], top_n_sigma=1.0)
    generate(pair, PROMPTS[0], catalog["speculative"](lenience=0.5), **OPTIONS)
    kinds = {"layer_types": ["sliding_attention"] * 2, "sliding_window": 8}
    models = [
        halved(build("qwen3", torch.float32, use_sliding_window=True, seed=seed, **kinds))
        for seed in (0, 1)
    ]
    decoded(ModelPair(*models), PROMPTS[0])
    assert not made


@pytest.mark.parametrize("warping", WARPINGS[:3])
def test_who_is_left_of_a_batch_is_alone(warping, made, monkeypatch):
    """The other one ends early; from then on rounds are made in advance."""
    pair = build_pair()
    texts = [r.tokens for r in decoded(pair, PROMPTS[:2], **warping)]
    end = next(token for token in texts[1] if token not in texts[0])
    pair.target.generation_config.eos_token_id = end
    made.clear()
    found = [told(r) for r in decoded(pair, PROMPTS[:2], ignore_eos=False, **warping)]
    assert sum(made) > 0
    monkeypatch.setattr(Turn, "rounds_ahead", lambda self, most: None)
    assert found == [told(r) for r in decoded(pair, PROMPTS[:2], ignore_eos=False, **warping)]


def test_nothing_is_made_after_the_end_of_a_text(monkeypatch):
    """A whole call was, at the end of most texts, after a draft that ended it."""
    model = halved(build("qwen3", torch.float32))
    pair = ModelPair(model, halved(build("qwen3", torch.float32)))  # all drafts are kept
    judged, rounds = [], PackedPasses.rounds

    def noted(self, *args):
        found = rounds(self, *args)
        if found:
            judged.extend(token for made in found[0].made for token in made.tokens)
        return found

    monkeypatch.setattr(PackedPasses, "rounds", noted)
    whole = decoded(pair, PROMPTS[0], temperature=0).tokens
    assert len({*whole} & {*judged}) > 5
    for end in dict.fromkeys(whole):
        judged.clear()
        pair.target.generation_config.eos_token_id = end
        decoded(pair, PROMPTS[0], ignore_eos=False, temperature=0)
        assert end not in judged


def test_a_budget_of_one_request_drafts_one_length_for_some_rounds(pair, made):
    """It chose anew in each round: the slowest of all lengths, where rounds can be made ahead."""
    now = iter(range(10**6)).__next__  # a pass takes as long as any other
    method = catalog["speculative"](draft_length="auto")
    options = {**OPTIONS, "max_new_tokens": 80, "temperature": 0}
    found = generate(pair, PROMPTS[0], method, clock=now, **options)
    assert found.tokens == generate(pair, PROMPTS[0], "greedy", **options).tokens
    assert max(made) > 2


def test_no_more_rounds_are_made_than_a_text_has(pair, made):
    """The last drafts are shorter, and nobody would ask for what comes after them."""
    for budget in range(1, 12):
        result = decoded(pair, PROMPTS[0], max_new_tokens=budget, temperature=0)
        assert len(result.tokens) == budget
        assert sum(made) < len(result.rounds)  # the first is not made in advance
        made.clear()


@pytest.mark.parametrize("warping", WARPINGS)
def test_the_last_rounds_are_made_in_advance_too(pair, warping, made, monkeypatch):
    """A text ended with a round of its own, since its last drafts are shorter."""
    asked, run = [], PackedPasses.run

    def noted(self, *args):
        asked.append(self.model)
        return run(self, *args)

    monkeypatch.setattr(PackedPasses, "run", noted)
    for budget in range(2, 9):
        asked.clear()
        result = decoded(pair, PROMPTS[0], max_new_tokens=budget, **warping)
        begins = len(result.rounds[0].tokens)
        # With one token left, no draft begins.
        assert asked.count(pair.packed["target"]) == (2 if budget == begins + 1 else 1)
    assert made


@pytest.mark.parametrize("warping", WARPINGS)
def test_rows_are_read_as_they_are_elsewhere(pair, warping, monkeypatch):
    checked, rounds, scan = [], PackedPasses.rounds, kernels().scan

    def compared(self, *args):
        for further in rounds(self, *args) or ():
            logits, ids, excesses = further.found
            for made in further.made:
                rows = further.rows[made.rows]
                expected = scan.likeliest(rows, ids.shape[1])
                assert (logits[made.rows] == expected[0]).all()
                assert (ids[made.rows] == expected[1]).all()
                for temperature, sums in excesses.items():
                    again = scan.excesses(rows, expected[0][:, 0].astype(float), temperature)
                    assert (sums[made.rows] == again).all()
                checked.append(made)
        return None

    monkeypatch.setattr(PackedPasses, "rounds", compared)
    decoded(pair, PROMPTS[0], **warping)
    assert len(checked) > 10


def test_rows_that_nobody_wrote_to_are_not_looked_at(pair, monkeypatch):
    """The last round of a text is shorter, and what lay in the memory of the rows that it leaves
    ended the call with an error, if it was not numbers."""

    def poisoned(*args):
        room = of(*args)
        for numbers in room:
            numbers.fill(math.nan if numbers.dtype.kind == "f" else 0)
        room.tops.fill(0)
        return room

    of = Room.of
    budgets = range(8, 32, 3)
    found = [told(decoded(pair, PROMPTS[0], max_new_tokens=n, temperature=0)) for n in budgets]
    monkeypatch.setattr(Room, "of", poisoned)
    for n, expected in zip(budgets, found, strict=True):
        assert told(decoded(pair, PROMPTS[0], max_new_tokens=n, temperature=0)) == expected


@pytest.mark.skipif("EVERYWHERE" not in os.environ, reason="it compiles anew; EVERYWHERE=1")
def test_memory_lives_as_long_as_a_pass_reads_it(tmp_path):
    """A pass read positions and rows of memory that numba may give back before, and does if it
    leaves out one of its own steps."""
    changed = {"NUMBA_LLVM_REFPRUNE_PASS": "0", "NUMBA_CACHE_DIR": str(tmp_path)}
    test = f"{__file__}::test_the_same_result"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    run = subprocess.run(command, env={**os.environ, **changed}, cwd=Path(__file__).parents[4])
    assert run.returncode == 0
