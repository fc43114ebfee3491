"""Writes a tiny Llama with a byte-level BPE as a GGUF file."""

import json
from pathlib import Path

import gguf
import numpy as np
from transformers import PreTrainedModel


def write_gguf(
    file: Path,
    model: PreTrainedModel,
    tokenizer: Path,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    architecture: str = "llama",
    leave_out: str = "",
) -> Path:
    """Write a file.

    Args:
        file: its path
        model: a Llama
        tokenizer: a `tokenizer.json` that splits by GPT-2's pattern
        kind: how matrices are stored
        architecture: what the file says it is
        leave_out: a weight that the file lacks
    """
    config, writer = model.config, gguf.GGUFWriter(file, architecture)
    writer.add_name("tiny")
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    words = json.loads(tokenizer.read_text(encoding="utf-8"))["model"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(sorted(words["vocab"], key=words["vocab"].get))
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in words["merges"]])
    writer.add_eos_token_id(0)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weight in model.float().state_dict().items():
        if name == leave_out or (name == "lm_head.weight" and config.tie_word_embeddings):
            continue
        layer = name.split(".")[-2]
        if layer in heads:  # llama.cpp rotates neighbours, transformers i with i + half
            halves = weight.reshape(heads[layer], 2, -1, weight.shape[1])
            weight = halves.transpose(1, 2).reshape(weight.shape)
        values = weight.numpy().astype(np.float32)
        stored = gguf.quants.quantize(values, kind) if weight.ndim == 2 else values
        to = names.get_name(name, (".weight",))
        writer.add_tensor(to, stored, raw_dtype=kind if weight.ndim == 2 else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file
