"""A layer of a head (HeadLayer), in Llama's or Qwen3's form."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.models.llama.modeling_llama import LlamaMLP, apply_rotary_pos_emb
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP

# A layer, q (B, H, n, D), k and v (B, K, n, D) -> (B, n, H, D).
Attend = Callable[[Any, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
MLPS: dict[str, type[nn.Module]] = {"llama": LlamaMLP, "qwen3": Qwen3MLP}


class Norm(nn.Module):
    """Root mean square norm; that of transformers computes in float32 even in float64."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.empty(width)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        exact = x if x.dtype == torch.float64 else x.to(torch.float32)
        length = torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * (exact * length).to(x.dtype)


class Both(nn.Module):
    """A linear layer over a token's embedding and a state, as two products that are added.

    That is the product with both, one after the other.
    """

    def __init__(self, token: int, state: int, out: int, bias: bool):
        super().__init__()
        self.token = nn.Linear(token, out, bias=bias)
        self.state = nn.Linear(state, out, bias=False)

    def forward(self, token: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        return self.token(token) + self.state(state)


class HeadLayer(nn.Module):
    """A Llama or Qwen3 layer; the first one of EAGLE-3 attends over embedding and state.

    Args:
        config: of the layer
        number: its number
        joins: whether attention takes the embedding beside the state
        names: the names of its weights, without its own
        residual_normed: see `HeadSpec`
    """

    def __init__(
        self,
        config: Any,
        number: int,
        joins: bool,
        names: frozenset[str],
        residual_normed: bool,
    ):
        super().__init__()
        self.layer_idx, self.joins, self.residual_normed = number, joins, residual_normed
        width, eps = config.hidden_size, config.rms_norm_eps
        size = getattr(config, "head_dim", None) or width // config.num_attention_heads
        self.size, self.scaling = size, size**-0.5

        def norm(name: str, width: int = width) -> nn.Module:
            return Norm(width, eps) if f"{name}.weight" in names else nn.Identity()

        self.input_layernorm, self.hidden_norm = norm("input_layernorm"), norm("hidden_norm")
        self.post_attention_layernorm = norm("post_attention_layernorm")
        self.q_norm, self.k_norm = norm("self_attn.q_norm", size), norm("self_attn.k_norm", size)
        heads = {
            "q_proj": config.num_attention_heads,
            "k_proj": config.num_key_value_heads,
            "v_proj": config.num_key_value_heads,
        }
        self.projections: list[nn.Module] = []
        for name, count in heads.items():
            bias = f"self_attn.{name}.bias" in names
            made: nn.Module = (
                Both(width, width, count * size, bias)
                if joins
                else nn.Linear(width, count * size, bias=bias)
            )
            setattr(self, name, made)
            self.projections.append(made)
        self.o_proj = nn.Linear(
            heads["q_proj"] * size, width, bias="self_attn.o_proj.bias" in names
        )
        self.mlp = MLPS[config.model_type](config)

    def forward(
        self, token: torch.Tensor, state: torch.Tensor, turns: tuple, attend: Attend
    ) -> torch.Tensor:
        """token (B, n, W) and state (B, n, W) -> the state after the layer, (B, n, W)."""
        given, residual = [self.input_layernorm(token if self.joins else state)], state
        if self.joins:
            given.append(self.hidden_norm(state))
            residual = given[1] if self.residual_normed else state
        q, k, v = (project(*given) for project in self.projections)
        rows = q.shape[:-1]
        q = self.q_norm(q.view(*rows, -1, self.size)).transpose(1, 2)
        k = self.k_norm(k.view(*rows, -1, self.size)).transpose(1, 2)
        v = v.view(*rows, -1, self.size).transpose(1, 2)
        q, k = apply_rotary_pos_emb(q, k, *turns)
        state = residual + self.o_proj(attend(self, q, k, v).reshape(*rows, -1))
        return state + self.mlp(self.post_attention_layernorm(state))
