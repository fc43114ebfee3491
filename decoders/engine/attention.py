"""Attention of packed tokens over unpadded caches: one operator over plain tensors, so that a compiled pass has no graph break."""

import inspect
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention

from decoders.errors import first_line

log = logging.getLogger("decoders")
FLASH = (
    torch.version.cuda is not None
    and torch.backends.cuda.is_flash_attention_available()
    and {"seqused_k", "enable_gqa"} <= inspect.signature(varlen_attn).parameters.keys()
)
# Triton comes with CUDA builds of torch, and builds its launchers with a C compiler.
TRITON = find_spec("triton") is not None and any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")))


class Part(NamedTuple):
    """One request's tokens start .. stop of a pass, and all its rows in use after it.

    bias     (tokens, rows) to add to the scores, or None;   causal  whether the tokens are all there is and each sees those before
    keys, values   the rows by layer, (1, K, rows, D)
    """

    start: int
    stop: int
    bias: Tensor | None
    causal: bool
    keys: Sequence[Tensor]
    values: Sequence[Tensor]


@dataclass(frozen=True, eq=False)
class Packing:
    """How the tokens of one pass belong to requests. (No tuple: hooks of accelerate, which move what a layer is given to its device, would
    take that apart and let layers write into copies of the arena.)

    rows      (tokens,) the arena row for each token's key and value
    segments  (requests, 7) on the CPU: first token, token after the last, first arena row, rows in use before the pass, the start of
              the request's part in `masks` and in `biases`, or -1 if it has none, and the first of its rows that its mask speaks of
    table     (5, requests + 1) int32 on the device, the same for kernels: first tokens and the end of the last; first arena rows; rows
              in use after the pass; starts in `masks`; first rows of masks
    masks     the (tokens, rows) masks flattened, bool; a token sees all rows before those and the ones that are True. A chain that
              sees all before it has none
    biases    the same for attention request by request, made once for all layers: what is added to the scores, 0 or -inf, (tokens, rows)
              flattened. Single tokens and whole prompts have none
    keys, values   the arena's tensors by layer, (rows, K, D)
    window    how many rows, its own included, a token of a chain sees; 0 if all. Masks hide by themselves what is not seen
    parts     for attention request by request without a compiler, what is the same for all layers; empty if there are kernels
    scratch   an arena row that no request has, or -1
    """

    rows: Tensor
    segments: Tensor
    table: Tensor
    masks: Tensor
    biases: Tensor
    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    window: int = 0
    parts: tuple[Part, ...] = ()
    scratch: int = -1


@dataclass(frozen=True, eq=False)
class Layered:
    """How the tokens of one pass belong to requests in layers that do not all see equally far or lie on several devices: `packings`, and
    for each layer which of them is its own and which of its layers it is there."""

    packings: tuple[Packing, ...]
    places: tuple[tuple[int, int], ...]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: Tensor,
    segments: Tensor,
    table: Tensor,
    masks: Tensor,
    biases: Tensor,
    scale: float,
    softcap: float,
    window: int,
    sinks: Tensor | None,
) -> Tensor:
    """q (H, tokens, D), k (K, tokens, D), v (K, tokens, D') -> (tokens, H, D').

    sinks   (H,) scores of one more row for each head, which is no token's and has no value; or None

    Writes k and v into their arena rows, then lets each request's tokens attend to that request's rows.
    """
    keys.index_copy_(0, rows, k.transpose(0, 1))
    values.index_copy_(0, rows, v.transpose(0, 1))
    while True:
        way = choose_way(q, values, segments, bool(softcap) or sinks is not None)
        try:
            with torch.cuda.device_of(q):  # where kernels are launched; this layer's need not be the first one's
                return way(q, keys, values, segments, table, masks, biases, scale, softcap, window, sinks)
        except Exception as error:  # of a compiler that lacks Python.h, of a driver, of a GPU that nobody has tested
            if way is attend_one_by_one or way in FAILED or isinstance(error, torch.OutOfMemoryError):
                raise
            FAILED.add(way)
            log.warning(
                "%s does not run here (%s); passes use slower attention.",
                str(way.__doc__).split(",")[0],
                first_line(error),
            )


FAILED: set[Callable[..., Tensor]] = set()  # what raised an error on this machine is not tried again


def choose_way(
    q: Tensor, values: Tensor, segments: Tensor, special: bool, flash: bool = FLASH, triton: bool = TRITON
) -> Callable[..., Tensor]:
    """FlashAttention for chains and Triton for everything else, on CUDA devices that support them; otherwise request by request.
    `special`: with soft-capping or sinks, which FlashAttention lacks."""
    if not takes_kernels(q.device, q.dtype):
        return attend_one_by_one
    size = q.shape[-1]
    fits_flash = q.dtype != torch.float32 and size == values.shape[-1] and size % 8 == 0 and size <= 256 and not special
    if flash and attend_chains not in FAILED and fits_flash and bool((segments[:, 4] < 0).all()):
        return attend_chains
    return attend_with_triton if triton and attend_with_triton not in FAILED else attend_one_by_one


def takes_kernels(device: torch.device, dtype: torch.dtype) -> bool:
    return device.type == "cuda" and dtype != torch.float64 and torch.cuda.get_device_capability(device) >= (8, 0)


def needs_biases(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the attention of a pass may run request by request."""
    return not (TRITON and attend_with_triton not in FAILED and takes_kernels(device, dtype))


def attend_chains(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    segments: Tensor,
    table: Tensor,
    masks: Tensor,
    biases: Tensor,
    scale: float,
    softcap: float,
    window: int = 0,
    sinks: Tensor | None = None,
) -> Tensor:
    """FlashAttention, in one call, for passes in which every request's tokens are a chain."""
    starts, bases, totals, *_ = table
    count, past = (segments[:, 1] - segments[:, 0]), segments[:, 3]
    most, longest = int(count.max()), int((past + count).max())
    hides = 0 < window < longest
    out: Any = varlen_attn(
        q.transpose(0, 1),
        keys,
        values,
        starts,
        bases,  # where each request's keys begin; seqused_k says how many there are, so there may be gaps between requests
        most,
        longest,
        scale=scale,
        # Causal, the last query aligned with the last key. A window would keep single tokens from split keys and packed groups.
        window_size=(window - 1 if hides else -1, 0) if hides or most > 1 else (-1, -1),
        enable_gqa=True,
        seqused_k=totals[:-1],
    )
    return out.contiguous()


def attend_with_triton(*arguments: Any) -> Tensor:
    """Triton, in one launch, for all passes; it is imported only if it is used."""
    from decoders.engine.kernels import attend_packed

    return attend_packed(*arguments)


def attend_one_by_one(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    segments: Tensor,
    table: Tensor,
    masks: Tensor,
    biases: Tensor,
    scale: float,
    softcap: float,
    window: int = 0,
    sinks: Tensor | None = None,
) -> Tensor:
    """A call of SDPA per request: on any device, in any dtype."""
    parts = []
    for start, stop, base, past, mask_start, bias_start, told in segments.tolist():
        n, total = stop - start, past + stop - start
        if n == 0:
            continue
        hides, begin, bias = mask_start < 0 and 0 < window < total, base, None
        causal = bias_start < 0 and mask_start < 0 and past == 0 and n > 1 and not hides
        if bias_start >= 0:
            bias = biases[bias_start : bias_start + n * total].view(n, total)
        elif mask_start >= 0 or (n > 1 and not causal):  # there are none if they are not needed usually
            seen = q.new_ones(n, total, dtype=torch.bool).tril(past)
            if mask_start >= 0:
                seen[:, told:] = masks[mask_start : mask_start + n * (total - told)].view(n, total - told)
            elif hides:
                seen = seen.triu(past - window + 1)
            bias = q.new_zeros(n, total).masked_fill(~seen, float("-inf"))
        elif hides:  # a single token
            begin = base + total - window
        key, value = (t[begin : base + total].transpose(0, 1)[None] for t in (keys, values))
        parts.append(attend_request(q[None, :, start:stop], key, value, bias, causal, scale, softcap, sinks))
    return torch.cat(parts, 2)[0].transpose(0, 1).contiguous()


def attend_request(
    q: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    causal: bool,
    scale: float,
    softcap: float,
    sinks: Tensor | None = None,
) -> Tensor:
    """q (1, H, n, D), key and value (1, K, rows, D), bias (n, rows), sinks (H,) -> (1, H, n, D').

    No key is repeated for the query heads that share it: those of a single token become queries of one head, those of several tokens
    a batch over the same keys.
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
        shares = scores.softmax(-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(value.dtype)
        out = shares[..., : key.shape[-2]] @ value
    if groups > 1:
        # Reshaped, since the kernel that SDPA took may lay heads side by side.
        out = out.reshape(1, heads, 1, -1) if n == 1 else out.transpose(0, 1).reshape(1, heads, n, -1)
    return out


attend_op = torch.library.custom_op("decoders::attend", attend, mutates_args=("keys", "values"))


@attend_op.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *others: object) -> Tensor:
    return q.new_empty(q.shape[1], q.shape[0], v.shape[-1])
