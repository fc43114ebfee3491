"""Causal language models of transformers, tiny and random: packed and right, or refused in one sentence; never wrong, never a raw error.

Right means: the greedy tokens of a text alone, those of speculative decoding in a batch of three, and those of a draft tree, are the
likeliest of plain forward passes, whose log-probabilities the traces have too. Windows and the like are small enough to matter.
"""

import copy

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from decoders import InputError, ModelPair, catalog, generate
from tests.models import VOCABULARY

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 96,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
MOE = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2}
MLA = {
    "num_key_value_heads": 4,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": 48,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
WINDOW = {"sliding_window": 16}
RUN = {  # name in transformers, and changes of the config
    "llama": {},
    "llama, longrope": {"rope_parameters": LONGROPE},
    "llama, dynamic rope": {"rope_parameters": DYNAMIC},
    "mistral": {"sliding_window": 96},
    "mixtral": {"num_local_experts": 4},
    "ministral": {"sliding_window": 96, "head_dim": 8},
    "qwen2": {},
    "qwen2_moe": {**MOE, "shared_expert_intermediate_size": 16},
    "qwen3": {"head_dim": 8},
    "qwen3_moe": {**MOE, "head_dim": 8},
    "gemma": {"head_dim": 8},
    "gemma2": {"head_dim": 8, "sliding_window": 96, "attn_logit_softcapping": 3.0, "query_pre_attn_scalar": 8},
    "gemma3_text": {"head_dim": 8, "sliding_window": 96},
    "phi": {},
    "phi3": {"sliding_window": 96, "pad_token_id": 0},
    "phimoe": {"num_local_experts": 4},
    "olmo2": {},
    "olmo3": {"sliding_window": 96},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "gpt2": {"num_key_value_heads": None},
    "gpt_neox": {"num_key_value_heads": None},
    "gpt_bigcode": {"num_key_value_heads": None},
    "opt": {"num_key_value_heads": None, "ffn_dim": 48, "word_embed_proj_dim": 32, "init_std": 0.3, "pad_token_id": 1},
    "starcoder2": {},
    "granite": {},
    "cohere": {},
    "cohere2": {"sliding_window": 96},
    "exaone4": {"sliding_window": 96},
    "glm4": {"head_dim": 8, "pad_token_id": 0},
    "smollm3": {"pad_token_id": 0},
    "deepseek_v3": MLA,
    "llama4_text": {"num_local_experts": 2, "head_dim": 8, "attention_chunk_size": 96, "intermediate_size_mlp": 48},
}
REFUSED = {
    "mistral, window of 16": WINDOW,
    "phimoe, window of 16": {"num_local_experts": 4, **WINDOW},
    "gemma2, window of 16": {"head_dim": 8, **WINDOW},
    "llama4_text, chunks of 16": {"num_local_experts": 2, "head_dim": 8, "attention_chunk_size": 16},
    "gpt_oss": {"num_local_experts": 2, "head_dim": 8},
    "doge": WINDOW,
    "diffllama": {},
    "hrm_text": {},
    "bert": {"num_key_value_heads": None},
    "roberta": {"num_key_value_heads": None, "is_decoder": True, "pad_token_id": 1},
    "deepseek_v32": {**MLA, "index_topk": 8, "index_n_heads": 2, "index_head_dim": 16},
    "minimax": {},
    "bloom": {"num_key_value_heads": None},
    "falcon": {"num_key_value_heads": None},
    "gptj": {"num_key_value_heads": None},
    "mamba": {"num_key_value_heads": None},
    "jamba": {},
    "nemotron": {},
    "qwen3_5_text": {"head_dim": 8},
}


def build_pair(name: str, changes: dict) -> tuple[torch.nn.Module, torch.nn.Module]:
    """A target, and a draft that is the same model with noise on its weights, so that some drafts are accepted."""
    torch.manual_seed(0)
    settings = {key: value for key, value in {**SIZES, **changes}.items() if value is not None or key in SIZES}
    if changes.get("num_key_value_heads", 0) is None:
        del settings["num_key_value_heads"]
    config = CONFIG_MAPPING[name.split(",")[0]](**settings)
    target = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    draft = copy.deepcopy(target)
    with torch.no_grad():
        for weight in draft.parameters():
            weight += 0.01 * torch.randn(weight.shape)
    return target, draft


def assert_right(model, prompt, result):
    """The tokens are the likeliest of a plain pass over the whole text, and their log-probabilities are its own."""
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + result.tokens]), use_cache=False).logits[0, len(prompt) - 1 : -1]
    assert result.tokens == logits.argmax(-1).tolist()
    found = torch.tensor([trial.log_p for trial in result.trials])
    torch.testing.assert_close(found, logits.log_softmax(-1).amax(-1), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", [*RUN, *REFUSED])
def test_an_architecture(name):
    target, draft = build_pair(name, {**RUN, **REFUSED}[name])
    try:
        pair = ModelPair(target, draft)
    except InputError as error:
        message = str(error)
        assert name in REFUSED, message
        assert message.startswith("The target model ")
        assert "\n" not in message
        assert len(message) < 300
        return
    prompts = [[5, 6, 7], list(range(10, 31)), [3]]
    options = {"max_new_tokens": 24, "temperature": 0, "ignore_eos": True}
    assert_right(target, prompts[1], generate(pair, prompts[1], "greedy", **options))
    for method in (catalog["speculative"](draft_length=3), catalog["specinfer"](expansion=(2, 2, 1))):
        for prompt, result in zip(prompts, generate(pair, prompts, method, **options), strict=True):
            assert_right(target, prompt, result)
