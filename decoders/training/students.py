"""What is trained, of what size and how far: a head (HeadStudent) or a model (DraftStudent)."""

import json
import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import save_torch_state_dict
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from decoders.engine.heads.module import HeadModule, HeadSpec, split
from decoders.engine.loading.heads import read_head
from decoders.engine.loading.pair import ModelPair
from decoders.engine.models.loaded import positions_of
from decoders.engine.protocols import Layers
from decoders.errors import InputError, allowed

KINDS = "head", "draft"
# The least number of each size.
LEAST = {
    "width": 0, "inner": 0, "heads": 0, "layers": 1, "vocabulary": 2, "steps": 1, "rows": 1,
    "length": 16, "own_texts": 0, "probes": 1, "seed": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """The size of a drafter and of its training.

    Attributes:
        kind: "head", which reads the target's states, or "draft", a model of its own
        width: its width; 0 for the target's, whose embeddings a head then shares, frozen and not
            saved, and a draft begins with. Embeddings of its own need far more text.
        inner: width of its gate; 0 for 8/3 of the width
        heads: of its attention; 0 for one each 64 numbers
        layers: of a draft; a head has one
        vocabulary: it proposes this many tokens, the most frequent ones
        steps: of the training
        rows: texts of this length in a step; of shorter ones there are more
        length: tokens of a text at most
        rate: learning rate of AdamW, for norms; output rows have a third of it
        muon: learning rate of Muon, for matrices
        own_texts: how many texts the target writes; 0 for only those that are given
        probes: prompts that acceptance is measured on
        seed: of weights and batches
    """

    kind: str = "head"
    width: int = 0
    inner: int = 0
    heads: int = 0
    layers: int = 2
    vocabulary: int = 8192
    steps: int = 2000
    rows: int = 8
    length: int = 256
    rate: float = 2e-3
    muon: float = 0.04
    own_texts: int = 3072
    probes: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        allowed("kind", self.kind, choices=KINDS)
        for name, least in LEAST.items():
            allowed(name, getattr(self, name), least, 2**31 - 1)
        heads = self.heads or max(1, self.width // 64)
        if self.width % (2 * heads):
            raise InputError(
                f"width must be a multiple of {2 * heads}, twice the number of heads, not "
                f"{self.width}."
            )


@dataclass(frozen=True)
class Acceptance:
    """What becomes of drafted tokens on held-out prompts, by place of a draft.

    Attributes:
        greedy: the share of tokens that are kept at temperature 0, of those whose places before
            were kept
        drawn: the same at temperature 0.7 and top-p 0.9
    """

    greedy: tuple[float, ...]
    drawn: tuple[float, ...]

    def __str__(self) -> str:
        return (
            "held-out acceptance by place, of tokens whose places before were kept: "
            f"{in_words(self.greedy)} at temperature 0, {in_words(self.drawn)} at 0.7 and top-p 0.9"
        )


def in_words(shares: Sequence[float]) -> str:
    """The shares, and the tokens of a round whose draft has all these places."""
    tokens = 1 + sum(accumulate(shares, mul))
    return f"{', '.join(f'{share:.2f}' for share in shares)} ({tokens:.2f} tokens a pass)"


def unrolled(
    module: HeadModule, tokens: torch.Tensor, states: torch.Tensor, steps: int
) -> Iterator[torch.Tensor]:
    """Let a head draft from every place of a text, each time as it will: from its own states.

    Row i is made of token i + 1. In step k it stands at the k-th place of a draft: its state is the
    head's own of row i - 1 in step k - 1, and it sees the rows up to i - k made of the target's
    states, then one row of each step.

    Args:
        tokens: the text, (B, T)
        states: what `module.entering` gives for the target's states, (B, T, W)
        steps: places of a draft

    Yields:
        for each step what the output layer takes after the tokens 1 to T - 1, (B, T - 1, W); in
        step k the first k are of no draft

    Source:
        Li et al. 2025, EAGLE-3 (arXiv 2503.01840), section 3.2: training-time test
    """
    count = tokens.shape[1] - 1
    places = torch.arange(count, device=tokens.device)[None]
    keys: list[torch.Tensor] = []
    values: list[torch.Tensor] = []
    entering = states[:, :-1]
    for step in range(steps):

        def attend(
            layer: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, step: int = step
        ) -> torch.Tensor:
            groups = q.shape[1] // k.shape[1]
            k, v = (each.repeat_interleave(groups, 1) for each in (k, v))
            # Of an earlier step j, row i sees the row i - (step - j).
            keys.append(k)
            values.append(v)
            scores = q @ keys[0].transpose(2, 3)
            before = torch.ones(count, count, dtype=torch.bool, device=q.device).tril(-step)
            scores = scores.masked_fill(~before, float("-inf"))
            own = [(q * later(keys[j], step - j)).sum(-1, keepdim=True) for j in range(1, step + 1)]
            weights = (
                (torch.cat([scores, *own], -1).float() * layer.scaling).softmax(-1).to(v.dtype)
            )
            mixed = weights[..., :count] @ values[0]
            for j in range(1, step + 1):
                mixed = mixed + weights[..., count + j - 1, None] * later(values[j], step - j)
            return mixed.transpose(1, 2)

        normed, state = module.through(tokens[:, 1:], places, entering, attend)
        yield normed
        entering = later(state, 1, axis=1)


def later(rows: torch.Tensor, places: int, axis: int = 2) -> torch.Tensor:
    """Rows moved to later places; the first ones are zeros."""
    if not places:
        return rows
    rest = rows.narrow(axis, 0, rows.shape[axis] - places)
    return torch.cat([torch.zeros_like(rows.narrow(axis, 0, places)), rest], axis)


SHARD_BYTES = 99 * 10**5  # of the weights in a file


class HeadStudent:
    """A head in training. It has its weights in float32; what is the target's is not trained.

    Args:
        spec: what it is
        weights: its weights by the names of `HeadModule`, without embeddings that it shares
        proposed: the target's token of each token that it proposes, rising
        target: its target

    Attributes:
        module: its layers
        reads: layers of the target whose states it reads
    """

    def __init__(
        self,
        spec: HeadSpec,
        weights: dict[str, torch.Tensor],
        proposed: np.ndarray,
        target: PreTrainedModel,
    ):
        self.spec, self.proposed, self.target, self.reads = spec, proposed, target, spec.reads
        table: Any = target.get_input_embeddings()
        self.shares = "embed_tokens.weight" not in weights
        given = {name: weight.float() for name, weight in weights.items()}
        given.setdefault("embed_tokens.weight", table.weight.detach())
        with torch.device("meta"):
            self.module = HeadModule(spec, {name: weight.shape for name, weight in given.items()})
        del self.module.rotary
        self.module.load_state_dict(split(self.module, given), assign=True)
        # Its frequencies were on no device.
        self.module.rotary = LlamaRotaryEmbedding(spec.config)
        self.module.to(target.device)
        for name, weight in self.module.named_parameters():
            weight.requires_grad_(not (self.shares and name == "embed_tokens.weight"))

    @classmethod
    def of(cls, recipe: Recipe, pair: ModelPair, proposed: np.ndarray) -> "HeadStudent":
        """A head whose weights are drawn from torch's global random source.

        Where it is as wide as the target, its state begins as the target's last one, and its output
        rows as the target's.

        Args:
            proposed: the tokens that it proposes
        """
        target = pair.target
        config: Any = target.config.get_text_config()
        layers, width = config.num_hidden_layers, config.hidden_size
        # Spread evenly, the last one among them.
        reads = tuple(sorted({max(1, layers // 4), max(1, 5 * layers // 8), layers}))
        shape: Any = layer_of(recipe, target, 1)
        own, inner = shape.hidden_size, shape.intermediate_size
        heads = shape.num_attention_heads * shape.head_dim
        matrices = {
            "mix.weight": (own, len(reads) * width),
            "fc.weight": (own, 2 * own),
            **{f"layers.0.self_attn.{part}_proj.weight": (heads, own) for part in "qkv"},
            "layers.0.self_attn.o_proj.weight": (own, heads),
            "layers.0.mlp.gate_proj.weight": (inner, own),
            "layers.0.mlp.up_proj.weight": (inner, own),
            "layers.0.mlp.down_proj.weight": (own, inner),
            "lm_head.weight": (len(proposed), own),
        }
        norms = (
            "embedding_norm", "state_norm", "norm", "layers.0.input_layernorm",
            "layers.0.post_attention_layernorm",
        )  # fmt: skip
        weights = {f"{name}.weight": torch.ones(own) for name in norms}
        weights |= {f"fc_norm.{i}.weight": torch.ones(width) for i in range(len(reads))}
        for name, each in matrices.items():
            weights[name] = torch.randn(each) / math.sqrt(3 * each[1])
        output: Any = target.get_output_embeddings()
        if recipe.width in (0, width):
            weights["mix.weight"] *= 0.3
            weights["mix.weight"][:, -width:] += torch.eye(width)
            weights["lm_head.weight"] = output.weight.detach().float().cpu()[proposed].clone()
        if recipe.width:
            weights["embed_tokens.weight"] = torch.randn(config.vocab_size, own) * 0.5
        return cls(HeadSpec("EAGLE", shape, reads), weights, proposed, target)

    @classmethod
    def saved(cls, folder: Path, pair: ModelPair) -> "HeadStudent":
        """A head that `save` has written.

        Raises:
            InputError: if it is another kind of head or does not fit the target
        """
        target = pair.target
        spec, weights = read_head(str(folder), target)
        if "mix.weight" not in weights or "d2t" not in weights:
            raise InputError(f"The head {folder} is not one that this trainer made; name another.")
        ids = weights.pop("d2t").long().numpy() + np.arange(len(weights["lm_head.weight"]))
        table: Any = target.get_input_embeddings()
        if weights["embed_tokens.weight"].data_ptr() == table.weight.data_ptr():
            del weights["embed_tokens.weight"]
        return cls(spec, weights, ids, target)

    def rows(
        self, tokens: torch.Tensor, states: Sequence[torch.Tensor], places: int
    ) -> Iterator[torch.Tensor]:
        yield from unrolled(self.module, tokens, self.module.entering(states), places)

    def save(self, folder: Path) -> None:
        """Write config.json and weights in float16 in files of at most 10 MB."""
        weights: dict[str, torch.Tensor] = {}
        own = self.module.state_dict()
        for name, tensor in own.items():
            if ".state." in name or (self.shares and name == "embed_tokens.weight"):
                continue
            if ".token." in name:
                tensor = torch.cat([tensor, own[name.replace(".token.", ".state.")]], 1)
                name = name.replace(".token.", ".")
            for part in ("q_proj", "k_proj", "v_proj", "o_proj"):
                name = name.replace(f"layers.0.{part}", f"layers.0.self_attn.{part}")
            weights[name] = tensor.detach().half().contiguous().cpu()
        ids = torch.from_numpy(self.proposed).long()
        weights["d2t"] = (ids - torch.arange(len(ids))).to(torch.int32)
        size: Any = self.target.config.get_text_config()
        config = {
            **self.spec.config.to_diff_dict(),
            "architectures": ["LlamaForCausalLMEagle"],
            "draft_vocab_size": len(ids),
            "target_hidden_size": size.hidden_size,
            "eagle_aux_hidden_state_layer_ids": list(self.reads),
            "dtype": "float16",
        }
        folder.mkdir(parents=True, exist_ok=True)
        save_torch_state_dict(weights, folder, max_shard_size=SHARD_BYTES)
        # Last: a folder without it is no head.
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


class DraftStudent:
    """A small Llama in training, which drafts with the target's tokenizer.

    Args:
        tokenizer: the target's
    """

    reads: Layers = ()

    def __init__(self, model: Any, tokenizer: Any):
        self.module, self.tokenizer = model, tokenizer
        self.proposed = np.arange(model.config.vocab_size)

    @classmethod
    def of(cls, recipe: Recipe, pair: ModelPair, proposed: np.ndarray) -> "DraftStudent":
        """A model whose weights are drawn from torch's global random source; it proposes all."""
        target = pair.target
        model: Any = LlamaForCausalLM(layer_of(recipe, target, recipe.layers)).float()
        if not recipe.width:
            table: Any = target.get_input_embeddings()
            model.get_input_embeddings().weight = nn.Parameter(table.weight.detach().float())
            model.tie_weights()
        model.generation_config = target.generation_config
        return cls(model.to(target.device), pair.tokenizer)

    @classmethod
    def saved(cls, folder: Path, pair: ModelPair) -> "DraftStudent":
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return cls(model.to(pair.target.device), pair.tokenizer)

    def rows(
        self, tokens: torch.Tensor, states: Sequence[torch.Tensor], places: int
    ) -> Iterator[torch.Tensor]:
        """Once for all places: a model reads what it has drafted as it reads a text."""
        yield self.module.model(tokens, use_cache=False).last_hidden_state[:, 1:]

    def save(self, folder: Path) -> None:
        """Write the model in float16 in files of at most 10 MB, and the tokenizer."""
        deepcopy(self.module).half().save_pretrained(folder, max_shard_size=SHARD_BYTES)
        self.tokenizer.save_pretrained(folder)


def layer_of(recipe: Recipe, target: PreTrainedModel, layers: int) -> LlamaConfig:
    config: Any = target.config.get_text_config()
    width = recipe.width or config.hidden_size
    heads = recipe.heads or max(1, width // 64)
    turns: Any = getattr(config, "rope_parameters", None) or {}
    return LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=width,
        intermediate_size=recipe.inner or 64 * math.ceil(width / 24),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=width // heads,
        rms_norm_eps=1e-5,
        max_position_embeddings=positions_of(config) or 2048,
        rope_parameters={"rope_type": "default", "rope_theta": turns.get("rope_theta", 10_000.0)},
        tie_word_embeddings=True,
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=None,
    )
