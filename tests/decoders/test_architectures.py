"""Causal language models of transformers, tiny and random: right, packed or with their own cache, or refused in one sentence; never wrong,
never a raw error. `make models` tries all of them.

What right means is in `tests/zoo.py`. Windows and the like are small enough to matter.
"""

import pytest

from decoders import InputError, ModelPair
from tests import zoo

LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": 48,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
WIDE, NARROW = {"sliding_window": 96}, {"sliding_window": 16}  # of 96 positions
PACKED = {  # name in transformers, and changes of the config
    "llama": {},
    "llama, longrope": {"rope_parameters": LONGROPE},
    "llama, dynamic rope": {"rope_parameters": DYNAMIC},
    "mistral": WIDE,
    "mixtral": {},
    "ministral": WIDE,
    "qwen2": {},
    "qwen2_moe": {},
    "qwen3": {},
    "qwen3_moe": {},
    "gemma": {},
    "gemma2": {**WIDE, "attn_logit_softcapping": 3.0, "query_pre_attn_scalar": 8, "attn_implementation": "eager"},
    "gemma3_text": WIDE,
    "phi": {},
    "phi3": {**WIDE, "pad_token_id": 0},
    "phimoe": {"sliding_window": None},
    "olmo2": {},
    "olmo3": WIDE,
    "olmoe": {},
    "gpt2": {},
    "gpt_neox": {},
    "gpt_bigcode": {},
    "opt": {"pad_token_id": 1},
    "starcoder2": {},
    "granite": {},
    "cohere": {},
    "cohere2": WIDE,
    "exaone4": WIDE,
    "glm4": {"pad_token_id": 0},
    "smollm3": {"pad_token_id": 0},
    "deepseek_v3": {},
    "llama4_text": {"attention_chunk_size": 96},
}
PLAIN = {
    "mistral, window of 16": NARROW,
    "phimoe, window of 16": NARROW,
    "gemma2, window of 16": {**NARROW, "attn_logit_softcapping": 3.0, "attn_implementation": "eager"},
    "llama4_text, chunks of 16": {},
    "gpt_oss": {},
    "diffllama": {},
    "roberta": {"pad_token_id": 1},
    "bloom": {},
    "falcon": {},
    "gptj": {},
    "mamba": {},
    "jamba": {},
    "nemotron": {},
    "qwen3_5_text": {},
    "lfm2": {},
}
REFUSED = {"bert, looking ahead": {"is_decoder": False}}


@pytest.mark.parametrize("name", [*PACKED, *PLAIN, *REFUSED])
def test_an_architecture(name):
    target, draft = zoo.build_pair(name.split(",")[0], **{**PACKED, **PLAIN, **REFUSED}[name])
    try:
        pair = ModelPair(target, draft)
    except InputError as error:
        message = str(error)
        assert name in REFUSED, message
        assert message.startswith("The target model ")
        assert "\n" not in message
        assert len(message) < 400
        return
    assert name not in REFUSED
    assert bool(pair.plain) == (name in PLAIN), pair.plain
    zoo.assert_pair_right(pair, target)
