"""The layers of a head (HeadModule), of any spelling: which ones it has, its weights say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.models.llama.modeling_llama import (
    LlamaRotaryEmbedding,
)

from decoders.engine.attention.interface import packed_attention
from decoders.engine.heads.layer import Attend, Both, HeadLayer, Norm
from decoders.engine.memory.rows import Layout
from decoders.engine.models.loaded import positions_of
from decoders.engine.protocols import Layers


@dataclass(frozen=True)
class HeadSpec:
    """What a head is, beyond what the names and shapes of its weights say.

    Attributes:
        kind: "EAGLE-3" or "EAGLE"
        config: of its layers, a LlamaConfig or Qwen3Config
        reads: the target's layers whose states it reads, rising, numbered as in transformers
        residual_normed: whether the state is normed before it is added to what attention gives
        next_normed: whether the state for the next step comes after the last norm
    """

    kind: str
    config: Any
    reads: Layers
    residual_normed: bool = False
    next_normed: bool = False


class HeadModule(nn.Module):
    """The layers of EAGLE or EAGLE-3.

    A row is made of a token's embedding and of the state before the token, and gives logits for the
    next token and the state for the next row. A head of EAGLE may also mix several states of the
    target, as EAGLE-3 does, and norm embedding and state before it joins them.

    Args:
        spec: what the head is
        shapes: the shapes of its weights, by the names of `decoders.engine.loading.head_files`

    Attributes:
        earlier: 1, for the pair (token t + 1, state t) has position t in the readers of every
            spelling

    Source:
        Li et al. 2024, EAGLE (arXiv 2401.15077), section 3; Li et al. 2025, EAGLE-3 (arXiv
        2503.01840), section 3.1
    """

    earlier = 1

    def __init__(self, spec: HeadSpec, shapes: Mapping[str, Sequence[int]]):
        super().__init__()
        self.spec, config = spec, spec.config
        self.kind, self.reads, self.width = f"{spec.kind} head", spec.reads, config.hidden_size
        # The limit of a text is the target's, unless the angles change beyond one of the head's.
        usual = (config.rope_parameters or {}).get("rope_type", "default") == "default"
        self.positions = None if usual else positions_of(config)
        width, eps = config.hidden_size, config.rms_norm_eps
        vocabulary, _ = shapes["embed_tokens.weight"]
        self.embed_tokens = nn.Embedding(vocabulary, width)
        self.joins = spec.kind == "EAGLE"
        self.fc: nn.Module = nn.Identity()
        if self.joins:
            self.fc = Both(width, width, width, "fc.bias" in shapes)
        elif "fc.weight" in shapes:
            self.fc = nn.Linear(shapes["fc.weight"][1], width, bias="fc.bias" in shapes)

        def norm(name: str) -> nn.Module:
            return Norm(shapes[name][0], eps) if name in shapes else nn.Identity()

        self.input_norm = norm("input_norm.weight")
        self.embedding_norm, self.state_norm = (
            norm("embedding_norm.weight"),
            norm("state_norm.weight"),
        )
        self.mix: nn.Module = nn.Identity()
        if "mix.weight" in shapes:
            self.mix = nn.Linear(shapes["mix.weight"][1], width, bias=False)
        self.fc_norm = nn.ModuleList(norm(f"fc_norm.{i}.weight") for i in range(len(spec.reads)))
        self.layers = nn.ModuleList(
            HeadLayer(
                config,
                number,
                number == 0 and not self.joins,
                frozenset(
                    name.removeprefix(f"layers.{number}.")
                    for name in shapes
                    if name.startswith(f"layers.{number}.")
                ),
                spec.residual_normed,
            )
            for number in range(config.num_hidden_layers)
        )
        self.norm = Norm(width, eps) if "norm.weight" in shapes else nn.Identity()
        self.lm_head = nn.Linear(width, shapes["lm_head.weight"][0], bias=False)
        self.rotary = LlamaRotaryEmbedding(config)

    def layout(self, device: torch.device) -> list[Layout]:
        heads: int = self.spec.config.num_key_value_heads
        sizes: list[Any] = [layer.size for layer in self.layers]
        return [Layout((heads, size, size), None, i, device) for i, size in enumerate(sizes)]

    def entering(self, states: Sequence[torch.Tensor]) -> torch.Tensor:
        """The states that rows are made of, (n, W), given those of the target, each (n, H)."""
        normed = [norm(state) for norm, state in zip(self.fc_norm, states, strict=True)]
        state = self.input_norm(torch.cat(normed, -1))
        return self.mix(state) if self.joins else self.fc(state)

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        wanted: torch.Tensor,
        packing: Any,
        states: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one pass.

        Args:
            input_ids: tokens, (1, n)
            position_ids: their positions, (1, n)
            wanted: indices of the tokens that want logits, (m,)
            packing: which tokens and rows belong to which request
            states: the state before each token, (1, n, W)

        Returns:
            logits over the head's own tokens, (m, Vd), and the state at each token, (n, W)
        """

        def attend(layer: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return packed_attention(layer, q, k, v, None, scaling=layer.scaling, packing=packing)[0]

        normed, state = self.through(input_ids, position_ids, states, attend)
        return self.lm_head(normed[:, wanted, :])[0], state[0]

    def through(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        states: torch.Tensor,
        attend: Attend,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the output layer takes, and the state for the next row, both (B, n, W).

        Args:
            input_ids: tokens, (B, n)
            position_ids: their positions, (B, n)
            states: the state before each token, (B, n, W)
            attend: mixes the values of a layer
        """
        token, state = self.embed_tokens(input_ids), states
        if self.joins:
            state = self.fc(self.embedding_norm(token), self.state_norm(state))
        turns = self.rotary(token, position_ids)
        for layer in self.layers:
            state = layer(token, state, turns, attend)
        normed = self.norm(state)
        return normed, normed if self.spec.next_normed else state
