"""Results compared with the tokens that they must have."""

import math
from dataclasses import replace

import pytest

from decoders import catalog
from workbench.measuring.session import References, agreement
from workbench.runs.record import Alternative, Energy, Result, Sample, TokenRecord
from workbench.studies.study import Job


def token(id, *probabilities, shift=0.0):
    """A token whose place lists ids 0, 1, 2, ... with these probabilities, moved by `shift` nats of
    rounding."""
    likeliest = [Alternative(i, "", p * math.exp(shift)) for i, p in enumerate(probabilities)]
    return TokenRecord(id, 0, "", "sampled", 0, None, None, None, None, None, likeliest)


def result(*texts, decoder="greedy", **changes) -> Result:
    samples = [
        Sample(i, 1, tokens=list(tokens), finished="budget") for i, tokens in enumerate(texts)
    ]
    return replace(
        Result(decoder, 0, 0, {}, Energy(None, "not measured: a test"), samples), **changes
    )


def outputs(found: Result) -> dict[int, list[int]]:
    return {s.prompt: [t.id for t in s.tokens] for s in found.samples}


def check(greedy, other, dtype="float32"):
    a, b = result(greedy), result(other)
    return agreement("greedy", a, outputs(a), b, outputs(b), dtype)


def test_the_same_tokens_are_identical():
    tokens = [token(0, 0.6, 0.4), token(1, 0.3, 0.7)]
    found = check(tokens, [replace(t, fate="accepted") for t in tokens])
    assert (found.compared, found.differing, found.differs_at, found.near_tie) == (
        1,
        0,
        None,
        False,
    )


def test_a_gap_within_the_rounding_measured_before_it_is_a_near_tie():
    greedy = [token(0, 0.6, 0.4), token(0, 0.5005, 0.4995)]
    other = [token(0, 0.6, 0.4, shift=0.002), token(1, 0.4995, 0.5005)]
    found = check(greedy, other, "bfloat16")
    assert (found.differing, found.differs_at, found.near_tie, found.dtype) == (
        1,
        1,
        True,
        "bfloat16",
    )
    assert found.gap == pytest.approx(math.log(0.5005 / 0.4995))


def test_a_gap_far_above_the_rounding_is_a_difference():
    greedy = [token(0, 0.6, 0.4), token(0, 0.9, 0.1)]
    other = [token(0, 0.6, 0.4, shift=1e-6), token(1, 0.9, 0.1)]
    found = check(greedy, other)
    assert not found.near_tie
    assert found.gap == pytest.approx(math.log(9))
    assert found.noise == pytest.approx(1e-6, rel=1e-3)


def test_a_token_that_is_not_among_the_likeliest_has_no_gap_and_is_no_tie():
    found = check([token(0, 0.6, 0.4)], [token(9, 0.6, 0.4)])
    assert (found.differs_at, found.gap, found.near_tie) == (0, None, False)


def test_a_text_that_stops_early_differs_where_it_stops():
    tokens = [token(0, 0.6, 0.4)] * 3
    found = check(tokens, tokens[:2])
    assert (found.differing, found.differs_at, found.gap, found.near_tie) == (1, 2, None, False)


def test_without_tokens_only_the_number_of_texts_that_differ_is_known():
    bare = result((), ())
    found = agreement("greedy", bare, {0: [1, 2], 1: [3]}, bare, {0: [1, 2], 1: [4]}, "float32")
    assert (found.compared, found.differing, found.differs_at, found.gap) == (2, 1, None, None)


def job(name: str, seed: int = 0) -> Job:
    return Job(catalog[name](), 0, seed)


GOOD, OTHER = [token(0, 0.6, 0.4)], [token(1, 0.6, 0.4)]


def compare(references: References, of: Job, tokens, **changes):
    found = result(tokens, decoder=of.method.name, **changes)
    return references.compare(of, found, outputs(found))


def test_at_temperature_0_exact_decoders_are_compared_with_greedy_whatever_the_seed():
    references = References(0.0, "float32")
    assert compare(references, job("greedy"), GOOD) is None
    found = compare(references, job("speculative", seed=7), OTHER)
    assert (found.reference, found.differing) == ("greedy", 1)
    assert compare(references, job("mtad"), OTHER) is None  # its law is another


def test_without_greedy_an_exact_decoder_is_no_reference_for_the_others():
    references = References(0.0, "float32")
    assert compare(references, job("speculative"), GOOD) is None
    assert compare(references, job("spectr"), OTHER) is None


def test_sampled_tokens_are_compared_with_the_same_decoder_and_seed():
    references = References(1.0, "float32")
    assert compare(references, job("greedy"), GOOD) is None
    assert compare(references, job("speculative"), OTHER) is None
    assert compare(references, job("speculative"), OTHER).differing == 0
    assert compare(references, job("speculative"), GOOD).differing == 1
    assert compare(references, job("speculative", seed=1), GOOD) is None


def test_what_failed_or_was_stopped_is_neither_compared_nor_a_reference():
    references = References(0.0, "float32")
    stopped = {"samples": [Sample(0, 1, tokens=OTHER, finished="cancelled")]}
    assert compare(references, job("greedy"), OTHER, error="broken") is None
    assert compare(references, job("greedy"), OTHER, **stopped) is None
    # the first that is whole is the reference
    assert compare(references, job("greedy"), GOOD) is None
    assert compare(references, job("speculative"), GOOD).differing == 0
    assert compare(references, job("speculative"), OTHER, error="broken") is None
