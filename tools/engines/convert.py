"""Write a Llama model as a GGUF file, which llama.cpp reads.

    python -m tools.engines.convert assets/stories/target target.gguf

Matrices become float16. llama.cpp's own script refuses the embedded tokenizer, because it knows
tokenizers by the checksum of what they make of a text.
"""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM, PretrainedConfig

from decoders import InputError

CONTROL = {True: gguf.TokenType.CONTROL, False: gguf.TokenType.NORMAL}


def interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Reorder the rows of a query's or key's matrix.

    Transformers rotates row i of a head with row i + half; llama.cpp rotates neighbours.

    Args:
        weight: (heads * head size, width)
        heads: how many heads its rows hold
    """
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.transpose(1, 2).reshape(weight.shape)


def write(folder: Path, file: Path) -> None:
    """Write the model and the tokenizer of a folder to a file.

    Args:
        folder: a Llama model with a byte-level BPE, as transformers saves it
        file: the GGUF file; it appears when it is complete

    Raises:
        InputError: if the folder holds another architecture or another tokenizer
    """
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    if model.config.model_type != "llama":
        raise InputError(f"{folder} is a {model.config.model_type}; only a Llama can be written.")
    if (tokenizer["pre_tokenizer"] or {}).get("type") != "ByteLevel":
        raise InputError(f"The tokenizer of {folder} is no byte-level BPE.")
    partial = file.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH.LLAMA])
    writer.add_name(folder.name)
    describe(writer, model.config)
    add_tokenizer(writer, tokenizer, model.config)
    add_tensors(writer, model)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.rename(file)


def describe(writer: gguf.GGUFWriter, config: PretrainedConfig) -> None:
    """Add the shape of a model."""
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: dict, config: PretrainedConfig) -> None:
    """Add a byte-level BPE, split into words by the pattern of GPT-2."""
    ids = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    special = {added["id"] for added in tokenizer["added_tokens"] if added["special"]}
    merges = tokenizer["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([token for token, _ in ids])
    writer.add_token_types([CONTROL[i in special] for _, i in ids])
    writer.add_token_merges([each if isinstance(each, str) else " ".join(each) for each in merges])
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)
    writer.add_add_bos_token(False)


def add_tensors(writer: gguf.GGUFWriter, model: torch.nn.Module) -> None:
    """Add the weights by the names that llama.cpp gives them."""
    config = model.config
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        layer = name.split(".")[-2]
        weight = interleaved(weight, heads[layer]) if layer in heads else weight
        kind = np.float32 if weight.ndim == 1 else np.float16
        writer.add_tensor(names.get_name(name, (".weight",)), weight.numpy().astype(kind))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    write(args.folder, args.file)


if __name__ == "__main__":
    main()
