"""Small heads in each published spelling, and a slow computation of what they propose.

The computation follows the public readers alone and shares no line with the package: lists of
tokens and states, one token at a time, the whole text again for each.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from decoders import ModelPair, catalog, generate

Weights = dict[str, torch.Tensor]
LAYER = {
    "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 4, "rms_norm_eps": 1e-6, "rope_theta": 5e5, "max_position_embeddings": 512,
    "hidden_act": "silu",
}  # fmt: skip


def drafts_for(pair: ModelPair, name: str, prompts: Sequence[list[int]]) -> None:
    """Assert that the pair's draft drafts for a decoder.

    In a batch, with prompts in chunks, each request gets the tokens that it gets alone; at
    temperature 0 they are greedy decoding's, if the decoder is exact.
    """
    options = {"max_new_tokens": 12, "seed": 3, "top_k": 20, "prefill_chunk": 5}
    together = generate(pair, prompts, name, **options)
    assert [r.tokens for r in together] == [
        generate(pair, prompt, name, **options | {"seed": 3 + i}).tokens
        for i, prompt in enumerate(prompts)
    ]
    assert sum(r.metrics.draft_calls for r in together)
    method = catalog[name]()
    if method.lossless and not method.law.certain and name != "dsbd":
        cold = {"max_new_tokens": 12, "temperature": 0}
        for prompt in prompts:
            greedy = generate(pair, prompt, "greedy", **cold)
            assert generate(pair, prompt, name, **cold).tokens == greedy.tokens


def drawn(seed: int, **shapes: tuple[int, ...]) -> Weights:
    """Random weights in float64; norms are near one."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, shape in shapes.items():
        weight = 0.35 * torch.randn(shape, generator=generator, dtype=torch.float64)
        found[name] = 1 + weight if len(shape) == 1 and "bias" not in name else weight
    return found


def layer_weights(prefix: str, seed: int, width: int, joined: bool, qk_norms: bool = False):
    """The weights of a layer: q, k and v take embedding and state if `joined`."""
    heads, keys, size = 4, 2, 4
    into = 2 * width if joined else width
    shapes: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (heads * size, into),
        "self_attn.k_proj.weight": (keys * size, into),
        "self_attn.v_proj.weight": (keys * size, into),
        "self_attn.o_proj.weight": (width, heads * size),
        "mlp.gate_proj.weight": (24, width),
        "mlp.up_proj.weight": (24, width),
        "mlp.down_proj.weight": (width, 24),
        "post_attention_layernorm.weight": (width,),
    }
    if joined:
        shapes |= {"input_layernorm.weight": (width,), "hidden_norm.weight": (width,)}
    if qk_norms:
        shapes |= {"self_attn.q_norm.weight": (size,), "self_attn.k_norm.weight": (size,)}
    return drawn(seed, **{prefix + name: shape for name, shape in shapes.items()})


def saved(folder: Path, config: dict[str, Any], weights: Weights, binary: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if binary:
        torch.save(weights, folder / "pytorch_model.bin")
    else:
        save_file({k: v.contiguous() for k, v in weights.items()}, folder / "model.safetensors")
    return folder


def save_small_head(folder: Path, vocabulary: int, width: int) -> Path:
    """A head for a target of this vocabulary and width, in float32; it guesses at random."""
    own = LAYER["hidden_size"]
    weights = drawn(
        0,
        **{
            "embed_tokens.weight": (vocabulary, own),
            "fc.weight": (own, 2 * width),
            "norm.weight": (own,),
            "lm_head.weight": (vocabulary, own),
        },
    ) | layer_weights("midlayer.", 1, own, joined=True)
    config = LAYER | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": vocabulary,
        "eagle_aux_hidden_state_layer_ids": [1, 2],
    }
    return saved(folder, config, {name: weight.float() for name, weight in weights.items()})


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return weight * x / torch.sqrt((x * x).mean() + 1e-6)


def turned(x: torch.Tensor, position: int) -> torch.Tensor:
    """One head's vector, rotated: halves, as Llama has it; angles are in float32 everywhere."""
    half = len(x) // 2
    speed = 1.0 / 5e5 ** (torch.arange(0, len(x), 2).float() / len(x))
    cos, sin = (position * speed).cos().double(), (position * speed).sin().double()
    a, b = x[:half], x[half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin])


class Slow:
    """One layer of a head over a growing text, one row at a time.

    Args:
        weights: the layer's, without a prefix
        joined: whether attention takes embedding and state (EAGLE-3) or the state alone (EAGLE)
        residual_normed: `norm_before_residual`
    """

    def __init__(self, weights: Weights, joined: bool, residual_normed: bool = False):
        self.w, self.joined, self.residual_normed = weights, joined, residual_normed
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []

    def row(self, token: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        w, position = self.w, len(self.keys)
        if self.joined:
            normed = rms(state, w["hidden_norm.weight"])
            given = torch.cat([rms(token, w["input_layernorm.weight"]), normed])
            residual = normed if self.residual_normed else state
        else:  # SafeAILab/EAGLE, model/cnets1.py: no norm before the first layer
            given = residual = state
        q, k, v = (
            (w[f"self_attn.{name}_proj.weight"] @ given).view(-1, 4) for name in ("q", "k", "v")
        )
        if "self_attn.q_norm.weight" in w:
            q = torch.stack([rms(x, w["self_attn.q_norm.weight"]) for x in q])
            k = torch.stack([rms(x, w["self_attn.k_norm.weight"]) for x in k])
        self.keys.append(torch.stack([turned(x, position) for x in k]))
        self.values.append(v)
        mixed = []
        for head in range(4):
            query = turned(q[head], position)
            scores = torch.stack([query @ key[head // 2] / 2 for key in self.keys]).softmax(0)
            mixed.append(
                sum(s * value[head // 2] for s, value in zip(scores, self.values, strict=True))
            )
        state = residual + w["self_attn.o_proj.weight"] @ torch.cat(mixed)
        inner = rms(state, w["post_attention_layernorm.weight"])
        gate = torch.nn.functional.silu(w["mlp.gate_proj.weight"] @ inner)
        return state + w["mlp.down_proj.weight"] @ (gate * (w["mlp.up_proj.weight"] @ inner))
