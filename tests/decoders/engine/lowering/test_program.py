"""Programs give the tokens of plain passes; where there can be none, a pass is plain."""

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaForCausalLM

from decoders import ModelPair, catalog, generate
from decoders.engine.models.packed import PASSES
from tests.decoders.engine.test_graphs import warnings
from tests.models import VOCABULARY, build, build_tokenizer, halved

PROMPTS = [[5, 6, 7, 8], [3], [9] * 12, list(range(20, 60))]
OPTIONS = {"max_new_tokens": 12, "ignore_eos": True}
EXAMPLES = int(os.environ.get("RANDOM_REQUESTS", "40"))  # RANDOM_REQUESTS=1000 for a thousand


def small(**options):
    return halved(build(dtype=torch.float32, **options))


def tokens(pair, decoder="greedy", prompts=PROMPTS, **options):
    return [r.tokens for r in generate(pair, prompts, decoder, **OPTIONS | options)]


@pytest.fixture(scope="module")
def pairs():
    models = small(seed=0), small(seed=1, num_hidden_layers=1)
    return {passes: ModelPair(*models, build_tokenizer(), passes=passes) for passes in PASSES}


class Reads(LlamaForCausalLM):
    def forward(self, input_ids, **others):
        out = super().forward(input_ids, **others)
        if out.logits.max().item() < -1e9:
            out.logits += 1
        return out


class Draws(LlamaForCausalLM):
    def forward(self, input_ids, **others):
        out = super().forward(input_ids, **others)
        out.logits += 0 * torch.rand_like(out.logits)
        return out


class Branches(LlamaForCausalLM):
    def forward(self, input_ids, logits_to_keep=0, **others):
        out = super().forward(input_ids, logits_to_keep=logits_to_keep, **others)
        if input_ids.shape[1] > 20:
            out.logits += 5
        return out


KINDS = {Reads: "reads values back", Draws: "draws random numbers", Branches: "other numbers"}


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_no_program_runs_as_it_is(kind, caplog):
    """With one warning that gives the reason.

    The last one adds a number to all logits, which changes no token, but shows."""
    model = small(seed=3)
    model.__class__ = kind
    pair = ModelPair(model, None)
    tokens(pair)
    (message,) = warnings(caplog)
    assert KINDS[kind] in message
    assert KINDS[kind] in pair.packed["target"].engine_name
    assert tokens(pair) == tokens(ModelPair(model, None, passes="plain"))


request = st.fixed_dictionaries(
    {
        "decoder": st.sampled_from(list(catalog)),
        "prompts": st.lists(
            st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=45),
            min_size=1,
            max_size=5,
        ),
        "max_new_tokens": st.integers(1, 14),
        "seed": st.integers(0, 99),
        "temperature": st.sampled_from([0, 0.7, 1.0]),
        "top_k": st.sampled_from([0, 5]),
        "stop": st.lists(st.text("abcXYZ0 ", min_size=1, max_size=2), max_size=2),
        "max_batch": st.sampled_from([None, 1, 3]),
        "prefill_chunk": st.sampled_from([None, 7]),
    }
)


@given(request=request, failing=st.none() | st.integers(0, 5))
@settings(max_examples=EXAMPLES, deadline=None, derandomize=EXAMPLES == 40)
def test_random_requests(pairs, request, failing):
    """Programs give the tokens of plain passes, also after a failed pass."""

    def outcome(pair):
        packed, calls = pair.packed["target"], iter(range(1000))
        forward = packed.forward

        def fails(**inputs):
            if next(calls) == failing:
                raise RuntimeError("out of memory")
            return forward(**inputs)

        packed.forward = fails
        try:
            return tokens(pair, **request)
        except RuntimeError as error:
            return str(error)
        finally:
            packed.forward = forward

    assert outcome(pairs["program"]) == outcome(pairs["plain"])
