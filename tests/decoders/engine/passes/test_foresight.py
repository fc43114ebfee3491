"""Passes made in advance: fewer calls of the kernels, and the same tokens, traces and counts."""

from dataclasses import replace

import pytest
import torch

from decoders import ModelPair, catalog, generate
from decoders.engine.kernels.loading import kernels
from decoders.engine.passes.packed import PackedPasses
from decoders.randomness import SeededSource
from decoders.turn import Turn
from tests.models import build_both

pytestmark = pytest.mark.skipif(kernels() is None, reason="no kernels here")
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
COUNTS = (
    "target_calls", "draft_calls", "target_passes", "draft_passes", "bytes_read",
    "peak_cache_rows", "peak_cache_bytes",
)  # fmt: skip


def build_pair():
    """A pair whose weights float16 holds, so that kernels carry out its passes."""
    models = build_both(torch.float32)
    with torch.no_grad():
        for weight in (w for model in models for w in model.parameters()):
            weight.copy_(weight.bfloat16())
    return ModelPair(*models)


def alone(pair, method, **options):
    return [told(generate(pair, p, method, seed=3 + i, **options)) for i, p in enumerate(PROMPTS)]


def together(pair, method, **options):
    return [told(r) for r in generate(pair, PROMPTS, method, seed=3, **options)]


def told(result):
    """All of a result but its times."""
    return (
        result.tokens,
        result.finished,
        [
            (t.node, t.token, t.parent, t.fate, t.p, t.q, t.log_p, t.alternatives)
            for r in result.rounds
            for t in r.trials
        ],
        [(r.target_calls, r.draft_calls) for r in result.rounds],
        [getattr(result.metrics, name) for name in COUNTS],
    )


@pytest.fixture
def calls(monkeypatch):
    """The number of tokens that each pass has fed in advance."""
    seen, run = [], PackedPasses.run

    def counted(self, *args, **options):
        answers = run(self, *args, **options)
        seen.append(sum(len(answer.guessed) for answer in answers))
        return answers

    monkeypatch.setattr(PackedPasses, "run", counted)
    return seen


@pytest.mark.parametrize("warping", WARPINGS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("decode", [alone, together])
def test_the_same_result(decode, method, warping, calls, monkeypatch):
    pair, options = build_pair(), {"max_new_tokens": 24, **warping}
    found = decode(pair, METHODS[method], **options)
    passes = len(calls)
    assert sum(calls) > 0
    calls.clear()
    monkeypatch.setattr(Turn, "outlook", lambda self, most: None)
    assert found == decode(pair, METHODS[method], **options)
    assert sum(calls) == 0
    assert len(calls) > passes


@pytest.mark.parametrize("method", [name for name in METHODS if name != "greedy"])
def test_guesses_that_are_wrong_change_nothing(method, calls, monkeypatch):
    """Here the uniform numbers are not those that draw."""
    options = {"max_new_tokens": 24, "seed": 1, "temperature": 1.0}
    pair = build_pair()
    monkeypatch.setattr(Turn, "outlook", lambda self, most: None)
    expected = told(generate(pair, PROMPTS[0], METHODS[method], **options))
    monkeypatch.undo()
    outlook = Turn.outlook

    def wrong(self, most):
        found = outlook(self, most)
        return found and replace(found, numbers=[1 - n for n in found.numbers])

    monkeypatch.setattr(Turn, "outlook", wrong)
    assert told(generate(pair, PROMPTS[0], METHODS[method], **options)) == expected


def test_guesses_are_nearly_always_right(monkeypatch):
    """A wrong one costs a pass."""
    pair, made, right = build_pair(), 0, 0
    answer = Turn.answer

    def counted(self, readings, foreseen=(), fed=None):
        nonlocal made
        foreseen = list(foreseen)
        made += len(foreseen)

        def known(node):
            nonlocal right
            right += 1
            fed(node)

        answer(self, readings, foreseen, known)

    monkeypatch.setattr(Turn, "answer", counted)
    for warping in WARPINGS:
        generate(pair, PROMPTS, "multinomial", max_new_tokens=24, ignore_eos=True, **warping)
    assert right == made > 200


def test_time_is_shared_among_passes_that_were_made_together():
    """Else a race would show four tokens of greedy decoding at once."""
    result = generate(build_pair(), PROMPTS[0], "greedy", max_new_tokens=33, ignore_eos=True)
    seconds = [r.verify_seconds for r in result.rounds]
    groups = [seconds[i : i + 4] for i in range(1, 33, 4)]
    assert all(min(group) > max(group) / 20 for group in groups)
    assert sum(seconds) == pytest.approx(result.metrics.seconds, rel=0.01)


def test_a_source_shows_its_next_numbers_and_keeps_them():
    one, other = SeededSource(7), SeededSource(7)
    seen = one.peek(3)
    assert one.peek(5)[:3] == seen == [other.uniform() for _ in range(3)]
    assert [one.uniform() for _ in range(9)][3:] == [other.uniform() for _ in range(6)]
