"""Chains that kernels draw in one call: the tokens, traces and counts of drawing one by one."""

import pytest
import torch

from decoders import ModelPair, catalog, generate
from decoders.engine.passes import PackedPasses
from decoders.loop import Turn
from decoders.trace import Ledger, Round
from tests.models import build, build_both, halved
from tests.needs import needs_kernels
from tests.pairwise import pairwise

pytestmark = needs_kernels
PROMPTS = [[5, 6, 7, 8], [3], [9] * 12, [1, 2, 1, 2, 1]]
WARPINGS = [
    {"temperature": 0},
    {},
    {"top_k": 20, "top_p": 0.9},
    {"temperature": 0.6, "top_p": 0.9},
    {"temperature": 0.8, "min_p": 0.2},
    {"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0},  # whole numbers, as JSON has them
]
METHODS = {
    "greedy": catalog["greedy"](),
    "multinomial": catalog["multinomial"](),
    "speculative": catalog["speculative"](draft_length=5),
    "hesitating": catalog["speculative"](draft_length=5, confidence=0.05),
}
TOLD = (
    "node", "token", "parent", "fate", "p", "q", "accept_probability", "u", "log_p", "alternatives",
    "round",
)  # fmt: skip
COUNTS = (
    "target_calls", "draft_calls", "target_passes", "draft_passes", "bytes_read",
    "peak_cache_rows", "peak_cache_bytes",
)  # fmt: skip


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


def one_by_one(monkeypatch):
    """Python draws each token from the reading of a pass of its own."""
    monkeypatch.setattr(Turn, "chain", None)


@pytest.fixture
def calls(monkeypatch):
    """How many tokens of each request each call has drawn."""
    counts, run = [], PackedPasses._answers

    def counted(self, *args, **options):
        answers = run(self, *args, **options)
        counts.append(len(answers[0].tokens))
        return answers

    monkeypatch.setattr(PackedPasses, "_answers", counted)
    return counts


@pytest.mark.parametrize(
    ("warping", "method", "decode"), pairwise(WARPINGS, list(METHODS), [alone, together])
)
def test_the_same_result(pair, decode, method, warping, calls, monkeypatch):
    options = {"max_new_tokens": 24, **warping}
    found = decode(pair, METHODS[method], **options)
    passes = len(calls)
    assert sum(calls) > 0
    calls.clear()
    one_by_one(monkeypatch)
    assert found == decode(pair, METHODS[method], **options)
    assert sum(calls) == 0
    assert len(calls) > passes


@pytest.mark.parametrize("top_p", [0.5, 0.999])
def test_a_nucleus_wider_than_what_is_read_at_once(top_p, monkeypatch):
    """Kernels cut a flat distribution after 64 tokens, which was harmless while they guessed."""
    target = halved(build("llama", torch.float32, vocab_size=500))
    with torch.no_grad():
        target.lm_head.weight.mul_(0.25)
    pair, options = ModelPair(target, None), {"max_new_tokens": 40, "top_p": top_p}
    found = [generate(pair, [5], "multinomial", seed=i, **options).tokens for i in range(9)]
    one_by_one(monkeypatch)
    assert found == [generate(pair, [5], "multinomial", seed=i, **options).tokens for i in range(9)]


def test_the_tokens_of_one_call_share_its_time():
    """Else a race would show four tokens of greedy decoding at once."""
    ledger, rounds = Ledger(clock=iter([0.0, 4.0, 4.0, 4.5, 5.0]).__next__), []
    ledger.start()
    ledger.count("target", 2, 2)
    ledger.share(2)
    for i in range(3):
        rounds.append(Round(i, []))
        ledger.settle(rounds[-1])
    assert [r.verify_seconds for r in rounds] == [2.0, 2.5, 0.5]
    assert [r.target_calls for r in rounds] == [1, 1, 0]


@pytest.mark.parametrize("stop", [None, "second"])
def test_no_time_is_lost_when_a_text_ends_within_a_chain(stop):
    """The shares of tokens after the end were in no round, and their passes were counted."""
    ends = {"stop": lambda request, tokens: len(tokens) == 2} if stop else {"max_new_tokens": 7}
    result = generate(build_pair(), PROMPTS[0], "greedy", ignore_eos=True, **ends)
    spent = sum(r.draft_seconds + r.verify_seconds for r in result.rounds)
    assert spent == pytest.approx(result.metrics.seconds, rel=0.01)
    assert result.metrics.target_calls == len(result.tokens)


def test_many_requests_run_as_one_does(calls):
    """With many threads a pass of several ran by the modules, with other bits than alone."""
    threads, options = torch.get_num_threads(), {"max_new_tokens": 8, "ignore_eos": True}
    torch.set_num_threads(50)
    try:
        pair = build_pair()
        together = generate(pair, PROMPTS, "greedy", **options)
        assert sum(calls) > 0
        alone = [generate(pair, prompt, "greedy", **options) for prompt in PROMPTS]
        assert [r.tokens for r in together] == [r.tokens for r in alone]
    finally:
        torch.set_num_threads(threads)


def test_no_chain_is_drawn_where_it_would_take_long_or_rows_expire(calls):
    """A draw took time with the square of top-k; a window gave its rows back later."""
    generate(build_pair(), PROMPTS[0], "multinomial", max_new_tokens=8, top_k=300)
    kinds = {"layer_types": ["sliding_attention"] * 2, "sliding_window": 8}
    model = halved(build("qwen3", torch.float32, use_sliding_window=True, **kinds))
    generate(ModelPair(model, None), PROMPTS[0], "greedy", max_new_tokens=8)
    assert sum(calls) == 0
