"""Packed attention: what it is given (Packing, Layered), and how it is carried out (attend).

A model calls it by the name `NAME` in the registry of `transformers`, and the packing is passed as
the keyword argument `packing` of the model's forward. It says which tokens and cache rows belong to
which request. Caches have no padding; Triton or a call for each request attends.
"""

import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from decoders.devices import device_of
from decoders.engine.recorder import as_one_step
from decoders.errors import NotPackedError, first_line


def attend_one_by_one(
    q: torch.Tensor,
    packing: "Packing",
    layer: int,
    scale: float,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """A call of SDPA for each request, for whatever has no kernel; see `attend_layer`."""
    keys, values = packing.keys[layer], packing.values[layer]
    out = q.new_empty(q.shape[1], len(q), values.shape[-1])
    for start, stop, begin, end, bias, causal in packing.parts:
        key, value = (rows[begin:end].transpose(0, 1)[None] for rows in (keys, values))
        own = q[None, :, start:stop]
        part = attend_request(own, key, value, bias, causal, scale, softcap, sinks)
        out[start:stop] = part[0].transpose(0, 1)
    return out


def attend_request(
    q: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    causal: bool,
    scale: float,
    softcap: float,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend with one request's tokens.

    q (1, H, n, D), key and value (1, K, rows, D) -> (1, H, n, D'). No key is repeated for the query
    heads that share it: the queries of a single token become queries of one head, those of several
    tokens become a batch over the same keys.

    Args:
        bias: what is added to the scores, (n, rows), or None
        causal: whether the tokens have all the rows and each sees only those up to its own
        sinks: for each head the score of its sink, (H,), or None
    """
    _, heads, n, size = q.shape
    groups = heads // key.shape[1]
    if groups > 1:
        q = q.reshape(-1, groups, n, size)
        q = q.view(1, -1, groups, size) if n == 1 else q.transpose(0, 1)
        if n > 1:
            key, value = key.expand(groups, -1, -1, -1), value.expand(groups, -1, -1, -1)
    if not softcap and sinks is None:
        out = scaled_dot_product_attention(q, key, value, bias, is_causal=causal, scale=scale)
    else:
        scores = q @ key.transpose(-1, -2) * (scale / (softcap or 1.0))
        scores = softcap * torch.tanh(scores) if softcap else scores
        if causal:
            bias = q.new_full((n, n), float("-inf")).triu(1)
        scores = scores if bias is None else scores + bias
        if sinks is not None:
            sunk = sinks.view(-1, groups)  # (K, groups), as the heads lie
            sunk = sunk[None, :, :, None] if n == 1 else sunk.T[:, :, None, None]
            scores = torch.cat([scores, sunk.to(scores.dtype).expand(*scores.shape[:-1], 1)], -1)
        shares = scores.softmax(-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(
            value.dtype
        )
        out = shares[..., : key.shape[-2]] @ value
    if groups > 1:
        # A view would fail where the kernel that SDPA chose lays heads side by side.
        out = (
            out.reshape(1, heads, 1, -1) if n == 1 else out.transpose(0, 1).reshape(1, heads, n, -1)
        )
    return out


# Triton comes with CUDA builds of torch, and compiles its launchers with a C compiler.
TRITON = find_spec("triton") is not None and any(
    map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))
)
FAILED: list[str] = []  # why Triton does not run on this machine, where it is not tried again


def takes_kernels(device: torch.device, dtype: torch.dtype) -> bool:
    return device_of(device).has_kernels(dtype)


def attend_with_triton(
    q: torch.Tensor,
    packing: "Packing",
    layer: int,
    scale: float,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Triton, in one launch, for all passes; it is imported only if it is used."""
    from decoders.engine.attention.kernels import attend_packed

    cached, tables = (packing.keys[layer], packing.values[layer]), (packing.segments, packing.table)
    return attend_packed(q, *cached, *tables, packing.masks, scale, softcap, packing.window, sinks)


NAME = "decoders_packed"
# Arguments that attention may ignore: they are in the packing, or have no effect without padding or
# gradients.
_IGNORED = frozenset({
    "dropout", "is_causal", "position_ids", "use_cache", "cache_position", "output_attentions",
    "output_hidden_states", "output_router_logits", "return_dict", "s_aux", "sliding_window",
    "position_embeddings", "logits_to_keep",
})  # fmt: skip


@dataclass(frozen=True, eq=False)
class Packing:
    """The assignment of the tokens of one pass to requests.

    It is not a tuple: hooks of accelerate, which move a layer's arguments to the layer's device,
    would take a tuple apart, and layers would write into copies of the arena.

    Attributes:
        rows: the arena row of each token's key and value, (tokens,)
        segments: for each request, on the CPU, (requests, 6): first token, token after the last,
            first arena row, rows in use before the pass, where its part of `masks` begins (-1 for
            no part), and the first of its rows that its mask describes
        table: the same for kernels, (5, requests + 1), int32 on the device: first tokens and the
            end of the last; first arena rows; rows in use after the pass; starts in `masks`; first
            rows of masks
        masks: the masks (tokens, rows), flattened, bool. A token sees all rows before those of its
            mask, and the ones of the mask that are True. A chain that sees everything before it has
            no mask.
        keys: the arena's keys by layer, (rows, K, D)
        values: the arena's values by layer, (rows, K, D)
        window: how many rows, its own included, a token of a chain sees; 0 for all. Masks
            themselves hide the rows outside of the window.
        scratch: an arena row that no request has, or -1
    """

    rows: torch.Tensor
    segments: torch.Tensor
    table: torch.Tensor
    masks: torch.Tensor
    keys: Sequence[torch.Tensor]
    values: Sequence[torch.Tensor]
    window: int = 0
    scratch: int = -1

    @cached_property
    def parts(self) -> list[tuple[int, int, int, int, torch.Tensor | None, bool]]:
        """What all layers share if attention takes one request after another.

        Of each request its first token and the one after its last, the first arena row that they
        may see and the one after the last, what is added to the scores, (tokens, rows), or None,
        and whether they have all the rows and each sees only those up to its own.
        """
        made = []
        for start, stop, base, past, place, opening in self.segments.tolist():
            n, total = stop - start, past + stop - start
            masked, bias, begin = place >= 0, None, base
            hides = not masked and 0 < self.window < total
            causal = past == 0 and n > 1 and not masked and not hides
            if masked or (n > 1 and not causal):
                visible = self.masks.new_ones(n, total).tril(past)
                if masked:
                    mask = self.masks[place : place + n * (total - opening)]
                    visible[:, opening:] = mask.view(n, total - opening)
                elif hides:
                    visible = visible.triu(past - self.window + 1)
                bias = self.keys[0].new_zeros(n, total).masked_fill(~visible, float("-inf"))
            elif hides:  # a single token
                begin = base + total - self.window
            if n:
                made.append((start, stop, begin, base + total, bias, causal))
        return made


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
    return as_one_step(attend_layer, query, key, value, packing, layer, scale, softcap, s_aux), None


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
    """Write k and v into the arena, then let each request's tokens attend to its rows.

    One kernel takes all passes of a GPU, so a token has the same bits in a chain and in a tree.

    q is (1, H, tokens, D), k (1, K, tokens, D) and v (1, K, tokens, D'); the result is (1, tokens,
    H, D'). A way to attend takes q, (H, tokens, D), and returns (tokens, H, D').

    Args:
        sinks: for each head the score of one more row, without a token or a value, (H,); or None
    """
    packing, layer = of_layer(packing, layer)
    packing.keys[layer].index_copy_(0, packing.rows, k[0].transpose(0, 1))
    packing.values[layer].index_copy_(0, packing.rows, v[0].transpose(0, 1))
    q = q[0]
    if TRITON and not FAILED and takes_kernels(q.device, q.dtype):
        try:
            # Kernels are launched on the current device, and layers may lie on several devices.
            with torch.cuda.device_of(q):
                return attend_with_triton(q, packing, layer, scale, softcap, sinks)[None]
        except torch.OutOfMemoryError:
            raise
        # It may come from a compiler that lacks Python.h, from a driver or from an untested GPU.
        except Exception as error:
            FAILED.append(first_line(error))
            logging.getLogger("decoders").warning(
                "Triton does not run here (%s); passes use slower attention.", FAILED[0]
            )
    return attend_one_by_one(q, packing, layer, scale, softcap, sinks)[None]


# The registry of masks gets no entry, so models build no masks and do not search the positions for
# packed sequences.
AttentionInterface.register(NAME, packed_attention)
