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
from decoders.engine.kernels.loading import kernels
from decoders.engine.kernels.scan import CompiledScan
from decoders.engine.passes.packed import PackedPasses
from decoders.engine.passes.room import Room
from decoders.ledger import Ledger
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
from tests.needs import needs_kernels

pytestmark = needs_kernels
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


# Rounds differ by these: how many rows a draft has, and how many of them are written.
WAYS = {
    "tokenwise": {},
    "mixture": {"rule": "ensemble"},
    "doubt": {"confidence": 0.2, "gate": 0.2},
    "mixture and doubt": {"rule": "ensemble", "gate": 0.2},
}


def decoded(pair, prompt, length=3, rule="tokenwise", way="tokenwise", **options):
    method = catalog["speculative"](draft_length=length, **{"rule": rule, **WAYS[way]})
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


@pytest.mark.parametrize("rule", ["kseq", "multiround", "multipath"])
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
@pytest.mark.parametrize("way", WAYS)
def test_a_text_that_ends_among_guesses(way, warping, made, monkeypatch):
    """Whatever token ends it, drafted or not, early in a round or late."""
    pair = build_pair()
    options = {"way": way, **warping}
    whole = decoded(pair, PROMPTS[0], **options).tokens
    for end in dict.fromkeys(whole):
        pair.target.generation_config.eos_token_id = end
        found = decoded(pair, PROMPTS[0], ignore_eos=False, **options)
        # Drafts that may end in doubt take fewer random numbers if they end with the text.
        if "doubt" not in way:
            assert found.tokens == whole[: whole.index(end) + 1]
        assert end not in found.tokens[:-1]
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
    decoded(pair, PROMPTS[0], rule="kseq")  # nobody guesses what it keeps
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
@pytest.mark.parametrize("way", WAYS)
def test_rows_are_read_as_they_are_elsewhere(pair, way, warping, monkeypatch):
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
    decoded(pair, PROMPTS[0], way=way, **warping)
    assert len(checked) > 10


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("warping", [{"temperature": 0}, {"temperature": 0.6, "top_p": 0.9}])
def test_rows_that_nobody_wrote_to_are_not_looked_at(pair, warping, way, monkeypatch):
    """The last round of a text is shorter, and what lay in the memory of the rows that it leaves
    ended the call with an error, if it was not numbers."""

    def poisoned(*args):
        room = of(*args)
        for numbers in room:
            numbers.fill(math.nan if numbers.dtype.kind == "f" else 0)
        room.tops.fill(0)
        return room

    of = Room.of
    budgets, options = range(2, 32, 3), {"way": way, **warping}
    found = [told(decoded(pair, PROMPTS[0], max_new_tokens=n, **options)) for n in budgets]
    monkeypatch.setattr(Room, "of", poisoned)
    for n, expected in zip(budgets, found, strict=True):
        assert told(decoded(pair, PROMPTS[0], max_new_tokens=n, **options)) == expected


def test_nobody_adds_up_rows_that_are_not_used(pair, monkeypatch):
    """With drafts that end in doubt, most rows of a call have not been written to."""
    counted, excesses = [], CompiledScan.excesses

    def noted(self, rows, *args):
        counted.append(len(rows))
        return excesses(self, rows, *args)

    monkeypatch.setattr(CompiledScan, "excesses", noted)
    result = decoded(pair, PROMPTS[0], 8, way="doubt", temperature=0.6, top_p=0.9)
    used = sum(entry.drafted + entry.tested + 2 for entry in result.rounds)
    assert 0 < sum(counted) <= used + 10  # and the rows of the prompt's pass


def test_rounds_stay_within_the_rows_of_both_models(pair, monkeypatch):
    """A draft model to which two tokens are new was taken for one that has room for one row more
    than it has, and kernels do not look where they write."""
    rounds, checked = PackedPasses.rounds, []

    def tight(self, draft, begun):
        rows, place = draft.caches[begun.tree][0], begun.tree.depths[begun.tip]
        size = 1 + begun.length
        whole, rows.capacity = rows.capacity, len(rows) + 2 * size

        def foresee(most):
            checked.append(len(rows) < place)
            assert most * size <= rows.capacity - place
            return begun.foresee(most)

        try:
            return rounds(self, draft, begun._replace(foresee=foresee))
        finally:
            rows.capacity = whole

    monkeypatch.setattr(PackedPasses, "rounds", tight)
    for prompt in PROMPTS:
        decoded(pair, prompt, temperature=0)
    assert {*checked} == {False, True}


@pytest.mark.skipif("EVERYWHERE" not in os.environ, reason="it compiles anew; EVERYWHERE=1")
def test_memory_lives_as_long_as_a_pass_reads_it(tmp_path):
    """A pass read positions and rows of memory that numba may give back before, and does if it
    leaves out one of its own steps."""
    changed = {"NUMBA_LLVM_REFPRUNE_PASS": "0", "NUMBA_CACHE_DIR": str(tmp_path)}
    test = f"{__file__}::test_the_same_result"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    run = subprocess.run(command, env={**os.environ, **changed}, cwd=Path(__file__).parents[4])
    assert run.returncode == 0
