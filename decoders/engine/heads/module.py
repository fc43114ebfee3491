"""The layers of a head (HeadModule, MtpLayers): which ones it has, its weights say."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import (
    LlamaMLP,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP

from decoders.engine.attention import interface
from decoders.engine.attention.interface import packed_attention
from decoders.engine.cache import Layout
from decoders.engine.models.loaded import positions_of
from decoders.engine.models.packed import PROBE, Probe
from decoders.engine.protocols import Layers
from decoders.engine.weights import hasten
from decoders.errors import InputError

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

        def project(name: str, heads: int) -> nn.Module:
            out, bias = heads * size, f"self_attn.{name}.bias" in names
            return Both(width, width, out, bias) if joins else nn.Linear(width, out, bias=bias)

        self.q_proj = project("q_proj", config.num_attention_heads)
        self.k_proj = project("k_proj", config.num_key_value_heads)
        self.v_proj = project("v_proj", config.num_key_value_heads)
        out = config.num_attention_heads * size
        self.o_proj = nn.Linear(out, width, bias="self_attn.o_proj.bias" in names)
        self.mlp = MLPS[config.model_type](config)

    def forward(
        self, token: torch.Tensor, state: torch.Tensor, turns: tuple, attend: Attend
    ) -> torch.Tensor:
        """token (B, n, W) and state (B, n, W) -> the state after the layer, (B, n, W)."""
        given, residual = [self.input_layernorm(token if self.joins else state)], state
        if self.joins:
            given.append(self.hidden_norm(state))
            residual = given[1] if self.residual_normed else state
        q, k, v = self.q_proj(*given), self.k_proj(*given), self.v_proj(*given)
        rows = q.shape[:-1]
        q = self.q_norm(q.view(*rows, -1, self.size)).transpose(1, 2)
        k = self.k_norm(k.view(*rows, -1, self.size)).transpose(1, 2)
        v = v.view(*rows, -1, self.size).transpose(1, 2)
        q, k = apply_rotary_pos_emb(q, k, *turns)
        state = residual + self.o_proj(attend(self, q, k, v).reshape(*rows, -1))
        return state + self.mlp(self.post_attention_layernorm(state))


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
        shapes: the shapes of its weights, by the names of `decoders.engine.loading.heads`

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
        mixes = "mix.weight" in shapes
        self.mix: nn.Module = (
            nn.Linear(shapes["mix.weight"][1], width, bias=False) if mixes else nn.Identity()
        )
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


Weights = Mapping[str, torch.Tensor]


def filled(name: str, spec: HeadSpec, weights: Weights, target: PreTrainedModel) -> HeadModule:
    """Make the module of a head, in the target's dtype and on its device.

    Args:
        name: its folder or hub id, for messages
        spec: what it is
        weights: its weights, by the names of `decoders.engine.loading.heads`
        target: the target

    Raises:
        InputError: if weights are missing or of other sizes
    """
    with torch.device("meta"):
        module = HeadModule(spec, {key: tensor.shape for key, tensor in weights.items()})
    given = split(module, weights)
    shapes = {key: tensor.shape for key, tensor in module.state_dict().items()}
    if lacking := [key for key in shapes if key not in given]:
        raise InputError(
            f"The head {name} has no weights for {', '.join(map(published, lacking[:2]))}; "
            "download it again."
        )
    if strange := [key for key, shape in shapes.items() if given[key].shape != shape]:
        raise InputError(
            f"The head {name} has weights of other sizes than its config.json says "
            f"({published(strange[0])}); download it again."
        )
    module.load_state_dict({key: given[key] for key in shapes}, assign=True)
    del module.rotary
    module = module.to(target.device, target.dtype).eval().requires_grad_(False)
    # Its frequencies are no weights: they stay in float32, or angles would be off by radians.
    module.rotary = LlamaRotaryEmbedding(spec.config).to(target.device)
    hasten(module)
    return module


def published(name: str) -> str:
    """The name of a weight as a file has it."""
    name = re.sub(r"\.(token|state)\.", ".", name)
    return re.sub(r"\.([qkvo]_proj|[qk]_norm)\.", r".self_attn.\1.", name)


def split(module: HeadModule, weights: Weights) -> dict[str, Any]:
    """Weights by the names of the module: those over a token and a state are taken apart."""
    own = {
        key.replace(".self_attn.", "."): tensor for key, tensor in weights.items() if key != "d2t"
    }
    for name, layer in module.named_modules():
        if isinstance(layer, Both) and f"{name}.weight" in own:
            weight, width = own.pop(f"{name}.weight"), layer.token.in_features
            own[f"{name}.token.weight"] = weight[:, :width].contiguous()
            own[f"{name}.state.weight"] = weight[:, width:].contiguous()
            if f"{name}.bias" in own:
                own[f"{name}.token.bias"] = own.pop(f"{name}.bias")
    return own


class MtpLayers(nn.Module):
    """The first of a target's layers for multi-token prediction, at every place of a draft.

    It reads the state after the final norm. Further layers, one for each place of a draft, are left
    out: the first one reads its own state again, as the heads of EAGLE do.

    Args:
        model: the layers as transformers loads them (`MtpModel`); embeddings and the output layer
            are the target's
        target: the target

    Attributes:
        earlier: 0, for the pair (token t + 1, state t) has position t + 1 (transformers,
            generation/candidate_generator.py, `MTPCandidateGenerator`)

    Raises:
        NotPackedError: if packed attention does not model the layer's attention

    Source:
        DeepSeek-V3 (arXiv 2412.19437), section 2.2
    """

    kind, earlier = "MTP head", 0
    reads: Layers = (-1,)

    def __init__(self, model: Any, target: PreTrainedModel):
        super().__init__()
        # Embeddings, output layer and rotary frequencies are modules of the caller's target: they
        # stay as they are, so only the others are moved.
        for part in (model.layers, getattr(model, "shared_post_norm", None)):
            if part is not None:
                part.to(target.device, target.dtype).eval().requires_grad_(False)
        self.model = model
        self.width: int = model.config.hidden_size
        self.positions = positions_of(model.config)
        model.config._attn_implementation = PROBE
        noted = Probe(self.positions)
        ids = torch.zeros(1, 2, dtype=torch.long, device=target.device)
        states = torch.zeros(1, 2, self.width, dtype=target.dtype, device=target.device)
        with torch.inference_mode():
            self._through(ids, ids, states, noted)
        self._layout = [noted.layers[0]]
        model.config._attn_implementation = interface.NAME

    def layout(self, device: torch.device) -> list[Layout]:
        return self._layout

    def entering(self, states: Sequence[torch.Tensor]) -> torch.Tensor:
        return states[0]

    def _through(
        self, ids: torch.Tensor, positions: torch.Tensor, states: torch.Tensor, packing: Any
    ) -> torch.Tensor:
        embedded = self.model.embed_tokens(ids)
        turns = self.model.rotary_emb and self.model.rotary_emb(embedded, position_ids=positions)
        state = self.model.layers[0](
            embedded,
            states,
            position_embeddings=turns,
            attention_mask=None,
            position_ids=positions,
            cache=None,
            packing=packing,
        )
        return self.model.shared_post_norm(state) if self.model.use_shared_post_norm else state

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        wanted: torch.Tensor,
        packing: Any,
        states: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        state = self._through(input_ids, position_ids, states, packing)
        return self.model._project_to_logits(state[:, wanted, :])[0], state[0]
