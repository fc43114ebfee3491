"""Tiny random models of every causal architecture of transformers, and whether decoders run them
right.

Right means: the greedy tokens of a text alone, those of speculative decoding in a batch of three,
and those of a draft tree, are the likeliest of plain forward passes over the whole text, whose
log-probabilities the traces have too.
"""

import copy
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassFieldValidationError
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from decoders import ModelPair, catalog, generate
from tests.models import VOCABULARY

# The usual range of weights, 0.02, gives nearly uniform distributions, which hide errors.
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 96,
    "initializer_range": 0.3, "init_std": 0.3, "bos_token_id": None, "eos_token_id": None,
    "pad_token_id": None,
}  # fmt: skip
EXPERTS = {
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "moe_num_experts": 4, "moe_k": 2,
    "shared_expert_intermediate_size": 16, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1,
}  # fmt: skip
# Many heads of an index, so that no scores are equal: the place would decide between them, also
# between whole passes of two lengths.
OTHERS = {
    "head_dim": 8, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8, "v_head_dim": 8, "index_topk": 16, "index_n_heads": 64,
    "index_head_dim": 16, "sliding_window": 16, "attention_chunk_size": 16,
    "intermediate_size_mlp": 48, "ffn_dim": 48, "word_embed_proj_dim": 32, "decoder_layers": 2,
    "decoder_attention_heads": 4, "decoder_ffn_dim": 48, "encoder_layers": 2,
    "encoder_attention_heads": 4, "encoder_ffn_dim": 48, "mamba_n_heads": 4, "mamba_d_head": 16,
    "mamba_d_state": 8, "mamba_num_heads": 4, "mamba_head_dim": 16, "mamba_n_groups": 1,
    "n_mamba_heads": 2, "ssm_state_size": 8, "state_size": 8, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
}  # fmt: skip
HYBRID = {
    "vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 8, "laurel_rank": 8,
    "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_head_dim": 8,
    "sliding_window_size": 16, "mamba_d_conv": 4, "mamba_dt_rank": 8, "mamba_chunk_size": 8,
    "chunk_size": 8, "use_mamba_kernels": False, "attention_head_dim": 16,
    "shared_intermediate_size": 48, "linear_head_dim": 8, "linear_num_heads": 4,
    "num_expert_group": 1, "num_experts_per_token": 2, "block_multiple_of": 8, "rotary_dim": 8,
    "is_decoder": True, "mamba_d_ssm": 64, "mamba_headdim": 32,
}  # fmt: skip
DROPPED = object()  # in place of a setting that is not to be given
QWEN4 = {
    "layer_types": ["linear_attention", "indexed_attention"], "indexer_n_heads": 4,
    "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 16, "indexer_compress_ratio": 4,
    "hc_count": 2, "hc_lowrank": 8,
}  # fmt: skip
# What a type needs beyond that; None takes a setting away.
OWN: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]}, "bigbird_pegasus": {"attention_type": "original_full"},
    "big_bird": {"attention_type": "original_full"},
    "cpmant": {"dim_head": 8, "dim_ff": 48, "prompt_length": 4, "prompt_types": 4},
    "ctrl": {"dff": 48},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0}, "ffn_config":
        {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 32},
    },
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}},
    },
    "falcon": {"ffn_hidden_size": 48},
    "gemma3n_text": {
        "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2, "activation_sparsity_pattern": [0.0] * 4,
    },
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 16},
    "hunyuan_v1_dense": {"head_dim": 8}, "hunyuan_v1_moe": {"head_dim": 8},
    "jamba": {
        "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2,
        "expert_layer_offset": 1,
    },
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 8},
    "minimax": {"block_size": 8}, "ministral": {"head_dim": 8},
    "moshi": {"ffn_dim": 48, "num_key_value_heads": 4},
    "nemotron": {"head_dim": 8, "num_key_value_heads": 4},
    "nemotron_h": {
        "layer_types": ["linear_attention", "moe", "full_attention", "mlp"], "num_hidden_layers":
        4, "mamba_num_heads": 8, "mamba_head_dim": 8, "n_groups": 2,
        "moe_shared_expert_intermediate_size": 16,
    },
    "prophetnet": {
        "num_hidden_layers": DROPPED, "num_decoder_layers": 2, "num_encoder_layers": 2,
        "is_encoder_decoder": False, "num_decoder_attention_heads": 4,
        "num_encoder_attention_heads": 4, "is_decoder": True,
    },
    "qwen4_exp_text": QWEN4,
    "recurrent_gemma": {
        "num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 16, "layer_types":
        DROPPED,
    },
    "reformer": {
        "num_hidden_layers": DROPPED, "is_decoder": True, "attn_layers": ["local", "local"],
        "axial_pos_shape": [8, 12], "axial_pos_embds_dim": [16, 16], "attention_head_size": 8,
        "feed_forward_size": 48, "local_attn_chunk_length": 8,
    },
    "rwkv": {"attention_hidden_size": 32},
    "xlm": {"causal": True, "emb_dim": 32, "n_layers": 2, "n_heads": 4},
    "xlnet": {"max_position_embeddings": DROPPED},
    "xlstm": {
        "v_head_dim": DROPPED, "embedding_dim": 32, "num_blocks": 2, "num_heads": 4, "chunk_size":
        8, "mode": "inference",
    },
    "zamba": {"layers_block_type": ["linear_attention", "hybrid"] * 2, "num_hidden_layers": 4},
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"]},
}  # fmt: skip


def small(model_type: str, **changes: Any) -> PretrainedConfig:
    """A tiny config of this type: all the sizes above that it has, and `changes`."""
    kind = CONFIG_MAPPING[model_type]
    usual = kind()

    def default(name: str, lacking: Any = None) -> Any:
        try:
            return getattr(usual, name, lacking)
        except Exception:  # transformers' own, of a setting that differs from layer to layer
            return 0

    sizes = {**SIZES, **EXPERTS, **OTHERS, **HYBRID}
    settings = {
        k: v for k, v in sizes.items() if default(k, sizes) is not sizes or k == "vocab_size"
    }
    if default("num_key_value_heads") is None:
        settings.pop("num_key_value_heads", None)
    if "kv_lora_rank" in settings and "num_key_value_heads" in settings:
        settings["num_key_value_heads"] = 4  # latent attention has as many
    for name in getattr(kind, "sub_configs", None) or {}:
        inner = default(name)
        if isinstance(inner, PretrainedConfig) and inner.model_type in CONFIG_MAPPING:
            settings[name] = small(inner.model_type).to_dict()
    if isinstance(default("pad_token_id"), int):
        settings["pad_token_id"] = 1  # such types use it
    kinds = list(dict.fromkeys(default("layer_types") or ()))
    # a layer of each
    if len(kinds) > 1 and not isinstance(getattr(kind, "layer_types", None), property):
        settings |= {"layer_types": kinds, "num_hidden_layers": len(kinds)}
    # only where the type uses it by itself, and can be told
    for name in ("sliding_window", "head_dim"):
        if isinstance(getattr(kind, name, None), property) or default(name) is None:
            settings.pop(name, None)
    settings |= {**OWN.get(model_type, {}), **changes}
    if default("unpadded_vocab_size"):  # the width of the logits
        settings["unpadded_vocab_size"] = settings["vocab_size"]
    settings = {
        k: v for k, v in settings.items() if v is not DROPPED and (v is not None or k in SIZES)
    }
    try:
        return kind(**settings)
    except StrictDataclassFieldValidationError:  # some cannot do without these tokens
        return kind(**settings | {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3})


def build_pair(model_type: str, **changes: Any) -> tuple[PreTrainedModel, PreTrainedModel]:
    """A target and, as its draft, the same with noise on its weights, so that some drafts are
    kept."""
    attention = {"attn_implementation": changes.pop("attn_implementation", None)}
    torch.manual_seed(0)
    target = AutoModelForCausalLM.from_config(small(model_type, **changes), **attention).eval()
    fill_padding(target)
    draft = copy.deepcopy(target)
    with torch.no_grad():
        for weight in draft.parameters():
            weight += 0.01 * torch.randn(weight.shape)
    return target, draft


def fill_padding(model: PreTrainedModel) -> None:
    """Give the embedding of padding, which is zeros, numbers: texts may have this token too.

    An index of keys scores them all alike for zeros, and takes other ones in passes of two lengths.
    """
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding) and module.padding_idx is not None:
            row = module.weight.data[module.padding_idx]
            row.copy_(0.3 * torch.randn(row.shape, generator=generator))


def assert_right(model: PreTrainedModel, prompt: list[int], result: Any) -> None:
    """The tokens are the likeliest of a plain pass over the text, with its log-probabilities."""
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + result.tokens]), use_cache=False).logits[
            0, len(prompt) - 1 : -1
        ]
    assert result.tokens == logits.argmax(-1).tolist()
    found = torch.tensor([trial.log_p for trial in result.trials])
    torch.testing.assert_close(found, logits.log_softmax(-1).amax(-1), rtol=1e-3, atol=1e-3)


def assert_pair_right(pair: ModelPair, target: PreTrainedModel) -> None:
    """A text alone, a batch of three with drafts, and with draft trees."""
    prompts = [[5, 6, 7], list(range(10, 31)), [3]]
    options = {"max_new_tokens": 24, "temperature": 0, "ignore_eos": True}
    assert_right(target, prompts[1], generate(pair, prompts[1], "greedy", **options))
    for method in (
        catalog["speculative"](draft_length=3),
        catalog["specinfer"](expansion=(2, 2, 1)),
    ):
        for prompt, result in zip(prompts, generate(pair, prompts, method, **options), strict=True):
            assert_right(target, prompt, result)
