"""Refusing by name what cannot be run."""

import re

import pytest
import transformers
from transformers import AutoModelForCausalLM, BloomConfig, FalconConfig, Gemma2Config, MistralConfig, T5Config

from decoders import InputError, ModelPair
from tests.models import VOCABULARY, build

TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": VOCABULARY}
WINDOWED = {**TINY, "intermediate_size": 32, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
REFUSED = {
    "bloom": (BloomConfig(**TINY), "(bloom) has an attention of its own"),
    "falcon": (FalconConfig(**TINY, alibi=True), "(falcon) has an attention of its own"),
    "gemma 2 as published": (Gemma2Config(**WINDOWED), "sliding window, which the packed cache does not model"),
    "mistral with a window": (MistralConfig(**WINDOWED, sliding_window=8), "sliding window, which the packed cache does not model"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_architectures(case):
    config, message = REFUSED[case]
    with pytest.raises(InputError, match=re.escape(message)):
        ModelPair(AutoModelForCausalLM.from_config(config), None)


def test_refused_encoder_decoder():
    config = T5Config(vocab_size=VOCABULARY, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    with pytest.raises(InputError, match="is an encoder-decoder model; load a causal language model"):
        ModelPair(transformers.T5ForConditionalGeneration(config), None)


def test_refused_attention_sinks():
    """What an attention is given beyond the usual is not silently left aside."""
    config = transformers.GptOssConfig(**WINDOWED, num_local_experts=2, layer_types=["full_attention"] * 2)
    with pytest.raises(InputError, match="attention takes s_aux, which the packed attention does not model"):
        ModelPair(AutoModelForCausalLM.from_config(config), None)


def test_refused_places():
    target = build()
    with pytest.raises(InputError, match=r"different devices, target on cpu and draft on meta; move one with \.to\(\)"):
        ModelPair(target, build().to("meta"))
    with pytest.raises(InputError, match="has no weights"):
        ModelPair(build().to("meta"), None)
    target.hf_device_map = {"model": 0, "lm_head": "cpu"}
    with pytest.raises(InputError, match="spread over several devices; load it on one"):
        ModelPair(target, None)
    with pytest.raises(InputError, match=r"A model of a pair is a transformers model, not 'gpt2'"):
        ModelPair("gpt2", None)


def test_refused_vocabulary_sizes():
    with pytest.raises(InputError, match=f"different vocabularies: 30 and {VOCABULARY} tokens"):
        ModelPair(build(), build(vocab_size=30))


def test_models_stay_where_and_as_they_are():
    target, draft = build(), build()
    pair = ModelPair(target, draft)
    assert pair.target is target
    assert pair.draft is draft
    assert target.config._attn_implementation == "sdpa"
