"""Passes made in advance: fewer calls of the kernels, and the same tokens, traces and counts."""

from dataclasses import replace

import pytest
import torch

from decoders import ModelPair, catalog, generate
from decoders.engine.passes.foresight import PASSES, most
from decoders.engine.passes.packed import PackedPasses
from decoders.foreseen import Foreseen
from decoders.ledger import Ledger
from decoders.randomness import SeededSource
from decoders.trace import Round, Trials
from decoders.turn import Turn
from tests.models import build, build_both
from tests.needs import needs_kernels

pytestmark = needs_kernels
PROMPTS = [[5, 6, 7, 8], [3], [9] * 12, [1, 2, 1, 2, 1]]
WARPINGS = [
    {"temperature": 0},
    {},
    {"top_k": 20, "top_p": 0.9},
    {"temperature": 0.6, "top_p": 0.9},
    {"temperature": 0.8, "min_p": 0.2},
]
METHODS = {
    "greedy": catalog["greedy"](),
    "multinomial": catalog["multinomial"](),
    "speculative": catalog["speculative"](draft_length=5),
    "hesitating": catalog["speculative"](draft_length=5, confidence=0.05),
}
OUTLOOKS = "outlook", "rounds_ahead"
TOLD = (
    "node", "token", "parent", "fate", "p", "q", "accept_probability", "u", "log_p", "alternatives",
    "round",
)  # fmt: skip
COUNTS = (
    "target_calls", "draft_calls", "target_passes", "draft_passes", "bytes_read",
    "peak_cache_rows", "peak_cache_bytes",
)  # fmt: skip


def halved(model):
    """The model with weights that float16 holds, so that kernels carry out its passes."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.bfloat16())
    return model


def build_pair():
    return ModelPair(*map(halved, build_both(torch.float32)))


@pytest.fixture(scope="module")
def pair():
    return build_pair()


def alone(pair, method, **options):
    return [told(generate(pair, p, method, seed=3 + i, **options)) for i, p in enumerate(PROMPTS)]


def together(pair, method, **options):
    return [told(r) for r in generate(pair, PROMPTS, method, seed=3, **options)]


def told(result):
    """All of a result but its times."""
    return (
        result.tokens,
        result.finished,
        [[getattr(t, name) for name in TOLD] for r in result.rounds for t in r.trials],
        [
            (r.tokens, r.keep, r.drafted, r.tested, r.accepted, r.target_calls, r.draft_calls)
            for r in result.rounds
        ],
        [getattr(result.metrics, name) for name in COUNTS],
    )


def unforeseen(monkeypatch):
    """Nobody says how a request goes on, so nothing is made in advance."""
    for name in OUTLOOKS:
        monkeypatch.setattr(Turn, name, lambda self, most: None)


def watched(monkeypatch):
    """The passes that are made in advance, and for each of those that are taken its rows."""
    made, right = [], []
    init, follow = Foreseen.__init__, Foreseen.follow

    def counted(self, tree, further, *args):
        made.extend([further] * further.passes)
        init(self, tree, further, *args)

    def followed(self, node, count=1):
        found = follow(self, node, count)
        right.extend([found] * count if found else [])
        return found

    monkeypatch.setattr(Foreseen, "__init__", counted)
    monkeypatch.setattr(Foreseen, "follow", followed)
    return made, right


@pytest.fixture
def calls(monkeypatch):
    """The number of passes that each call has made in advance."""
    seen, run, rounds = [], PackedPasses.run, PackedPasses.rounds

    def counted(self, *args, **options):
        answers = run(self, *args, **options)
        seen.append(sum(answer.further.passes for answer in answers if answer.further))
        return answers

    def of_rounds(self, *args):
        found = rounds(self, *args)
        seen.extend([sum(further.passes for further in found)] if found else [])
        return found

    monkeypatch.setattr(PackedPasses, "run", counted)
    monkeypatch.setattr(PackedPasses, "rounds", of_rounds)
    return seen


@pytest.mark.parametrize("method", METHODS)
def test_the_cache_knows_what_was_fed_in_advance(pair, method, monkeypatch):
    """After the prompt no pass feeds again what passes in advance have fed.

    A draft model is late by one token where a whole draft was kept."""
    fed, feeds = [], PackedPasses.feeds

    def noted(self, *args):
        found = feeds(self, *args)
        fed.append(max(len(feed.nodes) - len(feed.wanted) for feed in found))
        return found

    monkeypatch.setattr(PackedPasses, "feeds", noted)
    generate(pair, PROMPTS[0], METHODS[method], max_new_tokens=40, ignore_eos=True)
    assert sum(late > 1 for late in fed) == len(pair.packed) - (method in ("greedy", "multinomial"))


@pytest.mark.parametrize("warping", WARPINGS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("decode", [alone, together])
def test_the_same_result(pair, decode, method, warping, calls, monkeypatch):
    options = {"max_new_tokens": 24, **warping}
    found = decode(pair, METHODS[method], **options)
    passes = len(calls)
    assert sum(calls) > 0
    calls.clear()
    unforeseen(monkeypatch)
    assert found == decode(pair, METHODS[method], **options)
    assert sum(calls) == 0
    assert len(calls) > passes


@pytest.mark.parametrize("method", [name for name in METHODS if name != "greedy"])
def test_guesses_that_are_wrong_change_nothing(pair, method, calls, monkeypatch):
    """Here the uniform numbers are not those that draw."""
    options = {"max_new_tokens": 24, "seed": 1, "temperature": 1.0}
    unforeseen(monkeypatch)
    expected = told(generate(pair, PROMPTS[0], METHODS[method], **options))
    monkeypatch.undo()

    def wrong(outlook):
        def told_wrong(self, most):
            found = outlook(self, most)
            return found and replace(found, numbers=[1 - n for n in found.numbers])

        return told_wrong

    for name in OUTLOOKS:
        monkeypatch.setattr(Turn, name, wrong(getattr(Turn, name)))
    assert told(generate(pair, PROMPTS[0], METHODS[method], **options)) == expected


def test_guesses_are_nearly_always_right(pair, monkeypatch):
    """A wrong one costs a pass."""
    made, right = watched(monkeypatch)
    for warping in WARPINGS:
        generate(pair, PROMPTS, "multinomial", max_new_tokens=24, ignore_eos=True, **warping)
    assert len(right) > 0.99 * len(made) > 200


def test_a_call_is_as_long_as_somebody_may_wait_for_it(pair, calls):
    """Three passes in advance, whatever they took: a tenth of greedy decoding went into calls."""
    assert most(2**20) == PASSES - 1
    assert [most(2**n) for n in (28, 29, 30, 31, 40)] == [7, 3, 1, 0, 0]
    assert [most(2**27, requests) for requests in (4, 8, 9, 64)] == [15, 7, 4, 0]
    generate(pair, PROMPTS[1], "greedy", max_new_tokens=40, ignore_eos=True)
    assert max(calls) == PASSES - 1


def test_rounds_in_which_a_budget_drafts_nothing_are_made_in_advance(pair, calls, monkeypatch):
    """They verified empty drafts one by one: 15% slower than greedy decoding where that pays."""
    now, run = [0.0], PackedPasses.run

    def timed(self, *args, **options):
        now[0] += 1.0 if self.model is pair.packed["target"] else 50.0
        return run(self, *args, **options)

    monkeypatch.setattr(PackedPasses, "run", timed)
    options = {"max_new_tokens": 24, "temperature": 0, "ignore_eos": True}
    method = catalog["speculative"](draft_length="auto")
    found = generate(pair, PROMPTS, method, clock=lambda: now[0], **options)
    assert sum(calls) > 0.5 * sum(len(r.tokens) for r in found)
    expected = generate(pair, PROMPTS, "greedy", **options)
    assert [r.tokens for r in found] == [r.tokens for r in expected]


def test_time_is_shared_among_passes_that_were_made_together():
    """Else a race would show four tokens of greedy decoding at once."""
    ledger, rounds = Ledger(clock=iter([0.0, 4.0, 4.0, 4.5, 5.0]).__next__), []
    ledger.start()
    ledger.charge_pass("target", 1.0, [("target", 1.0, 3)])
    for i in range(3):
        if i:
            ledger.charge_ahead("target", 1)
        rounds.append(Round(i, Trials.of([])))
        ledger.settle(rounds[-1])
    assert [r.verify_seconds for r in rounds] == [1.0, 1.5, 1.5]


@pytest.mark.parametrize("stop", [None, "second"])
def test_no_time_is_lost_when_a_text_ends_among_guesses(stop):
    """The shares of passes that nobody asked for were in no round."""
    ends = {"stop": lambda request, tokens: len(tokens) == 2} if stop else {"max_new_tokens": 7}
    result = generate(build_pair(), PROMPTS[0], "greedy", ignore_eos=True, **ends)
    spent = sum(r.draft_seconds + r.verify_seconds for r in result.rounds)
    assert spent == pytest.approx(result.metrics.seconds, rel=0.01)


def test_drafts_that_were_not_asked_for_are_the_drafts_time():
    """It was the target's when a draft hesitated before it came to them."""
    ledger = Ledger(clock=iter([0.0, 4.0, 5.0, 5.0]).__next__)
    ledger.start()
    ledger.charge_pass("draft", 1.0, [("draft", 1.0, 3)])
    ledger.charge_pass("target")
    entry = Round(0, Trials.of([]))
    ledger.settle(entry)
    assert (entry.draft_seconds, entry.verify_seconds) == (4.0, 1.0)


def test_nothing_is_guessed_where_threads_share_a_pass(calls):
    """Kernels use one thread: guesses had other bits than the passes that they stood for."""
    threads = torch.get_num_threads()
    torch.set_num_threads(50)
    try:
        generate(build_pair(), PROMPTS, "greedy", max_new_tokens=8)
        assert sum(calls) == 0
        generate(build_pair(), PROMPTS[0], "greedy", max_new_tokens=8)
        assert sum(calls) > 0
    finally:
        torch.set_num_threads(threads)


def test_nothing_is_guessed_where_it_would_take_long_or_rows_expire(calls):
    """A guess took time with the square of top-k; a window gave its rows back later."""
    generate(build_pair(), PROMPTS[0], "multinomial", max_new_tokens=8, top_k=300)
    kinds = {"layer_types": ["sliding_attention"] * 2, "sliding_window": 8}
    model = halved(build("qwen3", torch.float32, use_sliding_window=True, **kinds))
    generate(ModelPair(model, None), PROMPTS[0], "greedy", max_new_tokens=8)
    assert sum(calls) == 0


def test_no_guess_follows_a_part_of_a_prompt(calls):
    """Guesses after the middle of a prompt were made and thrown away."""
    long = [5 + i % 40 for i in range(60)]
    options = {"max_new_tokens": 8, "temperature": 0, "prefill_chunk": 16}
    generate(build_pair(), long, METHODS["speculative"], **options)
    assert calls[:4] == [0] * 4


def test_a_source_shows_its_next_numbers_and_keeps_them():
    one, other = SeededSource(7), SeededSource(7)
    seen = one.peek(3)
    assert one.peek(5)[:3] == seen == [other.uniform() for _ in range(3)]
    assert [one.uniform() for _ in range(9)][3:] == [other.uniform() for _ in range(6)]


def test_a_pass_made_after_a_long_prompt_reads_what_one_token_does(pair, monkeypatch):
    """It was said to have read as many bytes as the pass of the prompt, which takes other
    weights."""
    prompt = [3 + i % 50 for i in range(230)]
    options = {"max_new_tokens": 12, "seed": 3, "ignore_eos": True}
    found = told(generate(pair, prompt, "speculative", **options))
    unforeseen(monkeypatch)
    assert found == told(generate(pair, prompt, "speculative", **options))
