"""Packed attention in the registry of `transformers`, and what it is given (Packing, Layered).

A model calls it by the name `NAME`, and the packing is passed as the keyword argument `packing` of
the model's forward. It says which tokens and cache rows belong to which request.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from transformers import AttentionInterface

from decoders.engine.attention.operator import attend, attend_request
from decoders.engine.recorder import as_one_step
from decoders.errors import NotPackedError

NAME = "decoders_packed"
# Arguments that attention may ignore: they are in the packing, or have no effect without padding or
# gradients.
_IGNORED = frozenset({
    "dropout", "is_causal", "position_ids", "use_cache", "cache_position", "output_attentions",
    "output_hidden_states", "output_router_logits", "return_dict", "s_aux", "sliding_window",
    "position_embeddings", "logits_to_keep",
})  # fmt: skip


class Span(NamedTuple):
    """One request in a pass: its tokens `start` to `stop`, and all its rows in use after the pass.

    Attributes:
        start: its first token
        stop: the token after its last
        bias: what is added to the scores, (tokens, rows), or None
        causal: whether the tokens have all the rows and each sees only those up to its own
        keys: the keys of the rows by layer, (1, K, rows, D)
        values: the values of the rows by layer, (1, K, rows, D)
    """

    start: int
    stop: int
    bias: torch.Tensor | None
    causal: bool
    keys: Sequence[torch.Tensor]
    values: Sequence[torch.Tensor]


@dataclass(frozen=True, eq=False)
class Packing:
    """The assignment of the tokens of one pass to requests.

    It is not a tuple: hooks of accelerate, which move a layer's arguments to the layer's device,
    would take a tuple apart, and layers would write into copies of the arena.

    Attributes:
        rows: the arena row of each token's key and value, (tokens,)
        segments: for each request, on the CPU, (requests, 7): first token, token after the last,
            first arena row, rows in use before the pass, where its part of `masks` begins, where
            its part of `biases` begins (-1 for no part), and the first of its rows that its mask
            describes
        table: the same for kernels, (5, requests + 1), int32 on the device: first tokens and the
            end of the last; first arena rows; rows in use after the pass; starts in `masks`; first
            rows of masks
        masks: the masks (tokens, rows), flattened, bool. A token sees all rows before those of its
            mask, and the ones of the mask that are True. A chain that sees everything before it has
            no mask.
        biases: the same for attention request by request, made once for all layers: 0 or -inf to
            add to the scores, (tokens, rows), flattened. Single tokens and whole prompts have none.
        keys: the arena's keys by layer, (rows, K, D)
        values: the arena's values by layer, (rows, K, D)
        window: how many rows, its own included, a token of a chain sees; 0 for all. Masks
            themselves hide the rows outside of the window.
        divide: makes `parts`, if attention takes one request after another
        scratch: an arena row that no request has, or -1
    """

    rows: torch.Tensor
    segments: torch.Tensor
    table: torch.Tensor
    masks: torch.Tensor
    biases: torch.Tensor
    keys: Sequence[torch.Tensor]
    values: Sequence[torch.Tensor]
    window: int = 0
    divide: Callable[[], tuple[Span, ...]] | None = None
    scratch: int = -1

    @cached_property
    def parts(self) -> tuple[Span, ...]:
        """What all layers share in attention request by request."""
        assert self.divide is not None
        return self.divide()


@dataclass(frozen=True, eq=False)
class Layered:
    """A pass whose layers follow different packings.

    Layers differ if they do not all see equally far back, or lie on several devices.

    Attributes:
        packings: the packings
        places: for each layer, its packing and its number in that packing
    """

    packings: tuple[Packing, ...]
    places: tuple[tuple[int, int], ...]


def of_layer(packing: Packing | Layered, layer: int) -> tuple[Packing, int]:
    if isinstance(packing, Layered):
        place, layer = packing.places[layer]
        packing = packing.packings[place]
    return packing, layer


def only_known(others: dict[str, object]) -> None:
    """Raise NotPackedError if attention gets arguments that packed attention does not model.

    Args:
        others: the arguments by name, apart from those that packed attention takes
    """
    strange = sorted(k for k, v in others.items() if v is not None and k not in _IGNORED)
    if strange:
        raise NotPackedError(
            f"its attention takes {', '.join(strange)}, which the packed attention does not model"
        )


def packed_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    softcap: float | None = None,
    packing: Any = None,
    s_aux: torch.Tensor | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attend in a model's layer; this is the function in the registry.

    Args:
        module: the attention layer of the model
        query: (1, H, tokens, D)
        key: (1, K, tokens, D)
        value: (1, K, tokens, D)
        attention_mask: a mask, which is refused
        scaling: factor of the scores; by default D ** -0.5
        softcap: soft cap of the scores, or None
        packing: the Packing or Layered of the pass
        s_aux: for each head the score of its sink, (H,), or None
        others: whatever else the model passes

    Returns:
        the result, (1, tokens, H, D), and None in place of attention weights

    Raises:
        NotPackedError: for a mask or an argument that packed attention does not model
    """
    only_known({**others, "a mask": attention_mask})
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer, softcap = module.layer_idx, softcap or 0.0
    run = attend_parts if of_layer(packing, layer)[0].divide else attend_layer
    return as_one_step(run, query, key, value, packing, layer, scale, softcap, s_aux), None


def attend_layer(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    packing: Packing | Layered,
    layer: int,
    scale: float,
    softcap: float,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """`attend` in one layer: q (1, H, tokens, D), k, v (1, K, tokens, D) -> (1, tokens, H, D)."""
    packing, layer = of_layer(packing, layer)
    tables = packing.rows, packing.segments, packing.table, packing.masks, packing.biases
    cached = packing.keys[layer], packing.values[layer]
    return attend(q[0], k[0], v[0], *cached, *tables, scale, softcap, packing.window, sinks)[None]


def attend_parts(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    packing: Packing | Layered,
    layer: int,
    scale: float,
    softcap: float,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend as in `attend_layer`, with the parts that `pack` prepared for all layers."""
    packing, layer = of_layer(packing, layer)
    if len(packing.parts) == 1:
        _, stop, bias, causal, keys, values = packing.parts[0]
        key, value, new = keys[layer], values[layer], slice(-stop, None)
        key[:, :, new].copy_(k)
        value[:, :, new].copy_(v)
        return attend_request(q, key, value, bias, causal, scale, softcap, sinks).transpose(1, 2)
    packing.keys[layer].index_copy_(0, packing.rows, k[0].transpose(0, 1))
    packing.values[layer].index_copy_(0, packing.rows, v[0].transpose(0, 1))
    return torch.cat(
        [
            attend_request(
                q[:, :, start:stop], keys[layer], values[layer], bias, causal, scale, softcap, sinks
            )
            for start, stop, bias, causal, keys, values in packing.parts
        ],
        2,
    ).transpose(1, 2)


# The registry of masks gets no entry, so models build no masks and do not search the positions for
# packed sequences.
AttentionInterface.register(NAME, packed_attention)
