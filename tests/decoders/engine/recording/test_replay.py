"""Recorded passes give the tokens of plain ones; where recording would not do, a pass is plain."""

import gc
import os
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaForCausalLM

from decoders import InputError, ModelPair, catalog, generate
from tests.models import FAMILIES, VOCABULARY, build, build_tokenizer

PROMPTS = [[5, 6, 7, 8], [3], [9] * 12, list(range(20, 60))]
OPTIONS = {"max_new_tokens": 12, "ignore_eos": True}
EXAMPLES = int(os.environ.get("RANDOM_REQUESTS", "40"))  # RANDOM_REQUESTS=1000 for a thousand


def warnings(caplog):
    return [
        r.getMessage()
        for r in caplog.records
        if r.name == "decoders" and "not recorded" in r.getMessage()
    ]


def tokens(pair, decoder="greedy", prompts=PROMPTS, **options):
    return [r.tokens for r in generate(pair, prompts, decoder, **OPTIONS | options)]


@pytest.fixture(scope="module")
def pairs():
    models, tokenizer = (build(seed=0), build(seed=1, num_hidden_layers=1)), build_tokenizer()
    return {
        passes: ModelPair(*models, tokenizer, passes=passes) for passes in ("plain", "recorded")
    }


@pytest.mark.parametrize("decoder", catalog)
@pytest.mark.parametrize(
    "sampling", [{"temperature": 0}, {"seed": 4, "temperature": 1.3}], ids=["greedy", "sampled"]
)
def test_the_same_tokens(pairs, decoder, sampling):
    for prompts in (PROMPTS, PROMPTS[:1]):
        found = {
            passes: tokens(pair, decoder, prompts, **sampling) for passes, pair in pairs.items()
        }
        assert found["recorded"] == found["plain"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_recorded(family, dtype, caplog, monkeypatch):
    """No module of the model runs once they are; in float64 the tokens are those of plain
    passes."""
    model = build(family, dtype)
    plain, recorded = (ModelPair(model, None, passes=passes) for passes in ("plain", "recorded"))
    expected = tokens(plain)
    assert not warnings(caplog)
    tokens(recorded)
    monkeypatch.setattr(torch.nn.Module, "__call__", None)
    found = tokens(recorded)
    assert dtype != torch.float64 or found == expected


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


class Squares(LlamaForCausalLM):
    def forward(self, input_ids, **others):
        out = super().forward(input_ids, **others)
        n = input_ids.shape[1]
        out.logits += torch.arange(n * n).sum()
        return out


class Branches(LlamaForCausalLM):
    def forward(self, input_ids, **others):
        out = super().forward(input_ids, **others)
        if input_ids.shape[1] > 20:
            out.logits += 5
        return out


KINDS = {
    Reads: "reads values back",
    Draws: "draws random numbers",
    Squares: "other numbers",
    Branches: "other numbers",
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_recorded_runs_as_it_is(kind, caplog):
    """With one warning that gives the reason.

    The last two cases add a number to all logits, which changes no token, but shows."""
    model = build(seed=3)
    model.__class__ = kind
    pair = ModelPair(model, None)
    tokens(pair)
    (message,) = warnings(caplog)
    assert KINDS[kind] in message
    assert tokens(pair) == tokens(ModelPair(model, None, passes="plain"))


def test_a_model_of_few_positions():
    model = build(max_position_embeddings=10)
    pair, plain = (ModelPair(model, None, passes=passes) for passes in ("recorded", "plain"))
    options = {"prompts": [[1, 2, 3], [4] * 7], "max_new_tokens": 3}
    assert tokens(pair, **options) == tokens(plain, **options)


def test_two_threads_record_at_once():
    model = build()
    expected = tokens(ModelPair(model, None, passes="plain"))
    pair, found = ModelPair(model, None), []
    with torch.no_grad():
        model.lm_head.weight.mul_(1)  # so that everything is recorded anew
    threads = [threading.Thread(target=lambda: found.append(tokens(pair))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [expected] * 4


def test_an_unknown_kind_of_passes():
    with pytest.raises(
        InputError, match="passes must be 'recorded', 'plain', 'compiled' or 'graphs', not 'quick'"
    ):
        ModelPair(build(), None, passes="quick")


def test_nothing_grows(pairs):
    """Tensors of a pass that outlive it would add up."""

    def count():
        gc.collect()
        # By type: `isinstance` asks weak proxies of other libraries for objects that are gone.
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    for decoder in catalog:
        tokens(pairs["recorded"], decoder)
    before = count()
    for i in range(200):
        tokens(
            pairs["recorded"],
            list(catalog)[i % len(catalog)],
            PROMPTS[i % 3 : i % 3 + 1],
            max_new_tokens=4,
        )
    assert count() <= before


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
    """In float64 recorded passes give the tokens of plain ones, also after a failed pass."""

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

    assert outcome(pairs["recorded"]) == outcome(pairs["plain"])
