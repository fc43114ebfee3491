"""A GGUF file holds the model: llama.cpp's computation on its tensors gives the same logits."""

import json
import shutil

import gguf
import pytest
import torch
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from decoders import InputError
from tests.models import build
from tools.engines.convert import write
from tools.engines.places import STORIES

IDS = [5, 9, 3, 17, 5, 40]


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def folder(request, tmp_path):
    """A tiny Llama with grouped heads and the embedded tokenizer."""
    model = build("llama", torch.float32, tie_word_embeddings=request.param, bos_token_id=0)
    model.config.eos_token_id = 0
    model.half().float().save_pretrained(tmp_path / "model")
    shutil.copy(STORIES / "draft" / "tokenizer.json", tmp_path / "model")
    return tmp_path / "model"


class Reader:
    """The fields and tensors of a file."""

    def __init__(self, file):
        self.file = gguf.GGUFReader(file)
        self.tensors = {
            each.name: torch.tensor(each.data.copy()).float() for each in self.file.tensors
        }

    def __getitem__(self, name):
        return self.file.fields[name].contents()


def rotated(x: torch.Tensor, base: float) -> torch.Tensor:
    """Neighbours are rotated, as llama.cpp does (heads, tokens, size)."""
    size = x.shape[-1]
    angles = torch.arange(x.shape[1])[:, None] * base ** (-torch.arange(0, size, 2) / size)
    a, b = x[..., ::2], x[..., 1::2]
    turned = (a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos())
    return torch.stack(turned, -1).flatten(-2)


def logits(read: Reader) -> torch.Tensor:
    """What llama.cpp computes for an architecture "llama"."""
    weights, key = read.tensors, "llama.attention."
    eps, base = read[f"{key}layer_norm_rms_epsilon"], read["llama.rope.freq_base"]
    x = weights["token_embd.weight"][IDS]
    for i in range(read["llama.block_count"]):

        def of(name, i=i):
            return weights[f"blk.{i}.{name}.weight"]

        h = rms_norm(x, x.shape[-1:], of("attn_norm"), eps)
        q, k, v = (
            (h @ of(f"attn_{name}").T).unflatten(-1, (count, -1)).transpose(0, 1)
            for name, count in zip(
                "qkv", (read[f"{key}head_count"], *[read[f"{key}head_count_kv"]] * 2), strict=True
            )
        )
        q, k = rotated(q, base), rotated(k, base)
        attended = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + attended.transpose(0, 1).flatten(1) @ of("attn_output").T
        h = rms_norm(x, x.shape[-1:], of("ffn_norm"), eps)
        x = x + (silu(h @ of("ffn_gate").T) * (h @ of("ffn_up").T)) @ of("ffn_down").T
    x = rms_norm(x, x.shape[-1:], weights["output_norm.weight"], eps)
    return x @ weights.get("output.weight", weights["token_embd.weight"]).T


def test_the_file_gives_the_logits_of_the_model(folder, tmp_path):
    from transformers import AutoModelForCausalLM

    write(folder, tmp_path / "model.gguf")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    found = logits(Reader(tmp_path / "model.gguf"))
    torch.testing.assert_close(found, model(torch.tensor([IDS])).logits[0], rtol=1e-4, atol=1e-4)
    assert list(tmp_path.glob("*.partial")) == []


def test_the_tokenizer_is_in_the_file(folder, tmp_path):
    write(folder, tmp_path / "model.gguf")
    read = Reader(tmp_path / "model.gguf")
    vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    tokens = read["tokenizer.ggml.tokens"]
    assert {token: i for i, token in enumerate(tokens)} == vocabulary["vocab"]
    assert len(read["tokenizer.ggml.merges"]) == len(vocabulary["merges"])
    types = read["tokenizer.ggml.token_type"]
    assert (types[0], set(types[1:])) == (gguf.TokenType.CONTROL, {gguf.TokenType.NORMAL})
    assert read["tokenizer.ggml.add_bos_token"] is False


def test_another_architecture_is_refused(tmp_path):
    build("gpt2", torch.float32).save_pretrained(tmp_path / "model")
    shutil.copy(STORIES / "draft" / "tokenizer.json", tmp_path / "model")
    with pytest.raises(InputError, match="is a gpt2; only a Llama"):
        write(tmp_path / "model", tmp_path / "model.gguf")
    assert not list(tmp_path.glob("*.gguf"))


def test_another_tokenizer_is_refused(folder, tmp_path):
    file = folder / "tokenizer.json"
    words = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**words, "pre_tokenizer": None}), encoding="utf-8")
    with pytest.raises(InputError, match="no byte-level BPE"):
        write(folder, tmp_path / "model.gguf")
    assert not list(tmp_path.glob("*.gguf"))
