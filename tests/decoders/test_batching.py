"""Batches as a service of the loop, in float64: padding, a memory budget, dynamic places.

The tokens are always the same."""

import pytest

from decoders import InputError, cache_need, catalog, generate
from decoders.engine.passes import PADDINGS
from tests.models import build_pair
from tests.pairwise import EVERYWHERE, pairwise, part

PROMPTS = [[5, 6, 7, 8], [3], [9] * 12, list(range(20, 40)), [1, 2, 1, 2, 1], [60, 3, 3]]
SHARED = {"max_new_tokens": 12, "top_k": 20, "ignore_eos": True}


@pytest.fixture(scope="module")
def pair():
    return build_pair()


FEW = "greedy", "speculative", "mtad", "dsbd", "beam_search", "specinfer", "lookup"


@pytest.fixture(scope="module")
def alone(pair):
    """The tokens of each prompt decoded alone, by decoder."""
    return {
        name: [
            generate(pair, p, catalog[name](), seed=i, **SHARED).tokens
            for i, p in enumerate(PROMPTS)
        ]
        for name in (catalog if EVERYWHERE else FEW)
    }


# Both paddings for some decoders, and the others for one.
SOME = [*((name, "both") for name in FEW), *(("speculative", p) for p in PADDINGS)]


@pytest.mark.parametrize(
    ("name", "padding"), pairwise(list(catalog), PADDINGS) if EVERYWHERE else sorted({*SOME})
)
def test_padding_changes_no_token(pair, alone, name, padding):
    results = generate(pair, PROMPTS, catalog[name](), padding=padding, max_batch=4, **SHARED)
    assert [r.tokens for r in results] == alone[name]
    tokens = sum(r.metrics.padded_tokens for r in results)
    rows = sum(r.metrics.padded_rows for r in results)
    assert padding in ("inputs", "both") or tokens == 0
    assert padding in ("kv", "both") or rows == 0
    assert (results[0].metrics.padding_ratio is None) == (padding in ("none", "inputs"))
    if name == "speculative" and padding == "both":
        assert tokens > 0 or rows > 0


def test_padded_rows_and_tokens_are_counted_by_hand(pair):
    """LLMA drafts of two prompts: inputs differ by the drafts, caches grow by the accepted
    tokens."""
    # greedy random models repeat themselves
    options = {"temperature": 0, "max_new_tokens": 60, "ignore_eos": True}
    results = generate(pair, [[1, 2, 1, 2, 1], [7]], catalog["lookup"](), padding="both", **options)
    lengths = [[len(r.nodes) for r in result.rounds] for result in results]
    inputs = [[1 + r.drafted for r in result.rounds] for result in results]
    together = min(map(len, lengths))
    # The prompts' own pass is left out; the last round aligns nothing, since no pass follows it.
    expected_tokens = [
        sum(max(pair) - own[i] for i, pair in enumerate(zip(*inputs, strict=False)) if i)
        for own in inputs
    ]
    pads = [
        [
            (max(pair) - own[i], max(pair))
            for i, pair in enumerate(zip(*lengths, strict=False))
            if i < together - 1
        ]
        for own in lengths
    ]
    expected_rows = [sum(rows for rows, _ in own) for own in pads]
    assert any(expected_tokens)
    assert any(expected_rows)
    for result, tokens, rows in zip(results, expected_tokens, expected_rows, strict=True):
        assert result.metrics.padded_tokens == tokens
        # While both run; the one left over is alone and never padded.
        assert result.metrics.padded_rows == rows
    for result, own in zip(results, pads, strict=True):
        ratios = [rows / longest for rows, longest in own] + [0.0] * (len(result.rounds) - together)
        assert result.metrics.padding_ratio == pytest.approx(sum(ratios) / len(ratios))


@pytest.mark.parametrize("name", part(catalog))
def test_a_decoder_never_needs_more_rows_than_it_says(pair, name):
    method = catalog[name]()
    for temperature in (0.0, 3.0):
        options = {"max_new_tokens": 20, "temperature": temperature, "ignore_eos": True}
        results = generate(pair, PROMPTS, method, **options)
        for prompt, result in zip(PROMPTS, results, strict=True):
            assert result.metrics.peak_cache_rows <= method.most_rows(len(prompt), 20)


@pytest.mark.parametrize("name", catalog if EVERYWHERE else FEW)
def test_a_memory_budget_admits_what_fits_and_queues_the_rest(pair, alone, name):
    method = catalog[name]()
    row_bytes = sum(
        pair.packed[role].row_bytes
        for role in (("target", "draft") if method.uses_draft else ("target",))
    )
    budget = 2 * row_bytes * method.most_rows(max(map(len, PROMPTS)), SHARED["max_new_tokens"])
    results = generate(pair, PROMPTS, method, max_cache_bytes=budget, **SHARED)
    assert [r.tokens for r in results] == alone[name]


@pytest.mark.parametrize("name", ["greedy", "speculative", "dsbd"])
def test_what_a_request_can_need_is_the_least_budget(pair, name):
    least = cache_need(pair, catalog[name](), 3, 8)
    options = {"max_new_tokens": 8, "ignore_eos": True}
    assert len(generate(pair, [5, 6, 7], name, max_cache_bytes=least, **options).tokens) == 8
    with pytest.raises(InputError, match=f"can need {least} bytes"):
        generate(pair, [5, 6, 7], name, max_cache_bytes=least - 1, **options)


@pytest.mark.parametrize(("options", "message"), [
    ({"padding": "all"}, "padding must be 'none', 'inputs', 'kv' or 'both', not 'all'."),
    ({"max_cache_bytes": 10_000}, "Prompt 2 can need"),
    ({"max_cache_bytes": 10**9, "padding": "kv"}, "max_cache_bytes needs padding='none'"),
])  # fmt: skip
def test_bad_input_is_refused(pair, options, message):
    with pytest.raises(InputError) as error:
        generate(pair, [[1], [2] * 30], "greedy", max_new_tokens=8, **options)
    assert message in str(error.value)
