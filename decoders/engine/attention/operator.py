"""Packed attention over unpadded caches: by FlashAttention, by Triton, or request by request."""

import inspect
import logging
import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention

from decoders.devices import device_of
from decoders.errors import first_line


def attend_one_by_one(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    segments: torch.Tensor,
    table: torch.Tensor,
    masks: torch.Tensor,
    biases: torch.Tensor,
    scale: float,
    softcap: float,
    window: int = 0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend with a call of SDPA for each request; see `attend` for the arguments."""
    parts = []
    for start, stop, base, past, mask_start, bias_start, opening in segments.tolist():
        n, total = stop - start, past + stop - start
        if n == 0:
            continue
        hides, begin, bias = mask_start < 0 and 0 < window < total, base, None
        causal = bias_start < 0 and mask_start < 0 and past == 0 and n > 1 and not hides
        if bias_start >= 0:
            bias = biases[bias_start : bias_start + n * total].view(n, total)
        # `pack` prepares no biases where attention usually has a kernel.
        elif mask_start >= 0 or (n > 1 and not causal):
            visible = q.new_ones(n, total, dtype=torch.bool).tril(past)
            if mask_start >= 0:
                visible[:, opening:] = masks[mask_start : mask_start + n * (total - opening)].view(
                    n, total - opening
                )
            elif hides:
                visible = visible.triu(past - window + 1)
            bias = q.new_zeros(n, total).masked_fill(~visible, float("-inf"))
        elif hides:  # a single token
            begin = base + total - window
        key, value = (t[begin : base + total].transpose(0, 1)[None] for t in (keys, values))
        parts.append(
            attend_request(q[None, :, start:stop], key, value, bias, causal, scale, softcap, sinks)
        )
    return torch.cat(parts, 2)[0].transpose(0, 1).contiguous()


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


FLASH = (
    torch.version.cuda is not None
    and torch.backends.cuda.is_flash_attention_available()
    and {"seqused_k", "enable_gqa"} <= inspect.signature(varlen_attn).parameters.keys()
)
# Triton comes with CUDA builds of torch, and compiles its launchers with a C compiler.
TRITON = find_spec("triton") is not None and any(
    map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))
)


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    rows: torch.Tensor,
    segments: torch.Tensor,
    table: torch.Tensor,
    masks: torch.Tensor,
    biases: torch.Tensor,
    scale: float,
    softcap: float,
    window: int,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Write k and v into the arena, then let each request's tokens attend to its rows.

    q is (H, tokens, D), k (K, tokens, D) and v (K, tokens, D'); the result is (tokens, H, D').

    Args:
        window: how many rows, its own included, a token of a chain sees; 0 for all
        sinks: for each head the score of one more row, without a token or a value, (H,); or None
    """
    keys.index_copy_(0, rows, k.transpose(0, 1))
    values.index_copy_(0, rows, v.transpose(0, 1))
    while True:
        way = choose_way(q, values, segments, bool(softcap) or sinks is not None)
        try:
            # Kernels are launched on the current device, and layers may lie on several devices.
            with torch.cuda.device_of(q):
                return way(
                    q, keys, values, segments, table, masks, biases, scale, softcap, window, sinks
                )
        # It may come from a compiler that lacks Python.h, from a driver or from an untested GPU.
        except Exception as error:
            if (
                way is attend_one_by_one
                or way in FAILED
                or isinstance(error, torch.OutOfMemoryError)
            ):
                raise
            FAILED.add(way)
            logging.getLogger("decoders").warning(
                "%s does not run here (%s); passes use slower attention.",
                str(way.__doc__).split(",")[0],
                first_line(error),
            )


# Ways that raised an error on this machine are not tried again.
FAILED: set[Callable[..., torch.Tensor]] = set()


def choose_way(
    q: torch.Tensor,
    values: torch.Tensor,
    segments: torch.Tensor,
    special: bool,
    flash: bool = FLASH,
    triton: bool = TRITON,
) -> Callable[..., torch.Tensor]:
    """Choose FlashAttention for chains and Triton for everything else, or the way without kernels.

    Kernels need a CUDA device that supports them; elsewhere attention runs request by request.
    FlashAttention lacks soft-capping and sinks, which `special` announces.
    """
    if not takes_kernels(q.device, q.dtype):
        return attend_one_by_one
    size = q.shape[-1]
    if (
        flash
        and attend_chains not in FAILED
        and not special
        and q.dtype != torch.float32
        and size == values.shape[-1]
        and size % 8 == 0
        and size <= 256
        and bool((segments[:, 4] < 0).all())
    ):
        return attend_chains
    return attend_with_triton if triton and attend_with_triton not in FAILED else attend_one_by_one


def takes_kernels(device: torch.device, dtype: torch.dtype) -> bool:
    return device_of(device).has_kernels(dtype)


def needs_biases(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the attention of a pass may run request by request."""
    return not (TRITON and attend_with_triton not in FAILED and takes_kernels(device, dtype))


def attend_chains(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    segments: torch.Tensor,
    table: torch.Tensor,
    masks: torch.Tensor,
    biases: torch.Tensor,
    scale: float,
    softcap: float,
    window: int = 0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
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
        # Where each request's keys begin; seqused_k says how many there are, so there may be gaps
        # between requests.
        bases,
        most,
        longest,
        scale=scale,
        # Causal, with the last query aligned with the last key. A window would prevent the split of
        # keys and the packing of groups for single tokens.
        window_size=(window - 1 if hides else -1, 0) if hides or most > 1 else (-1, -1),
        enable_gqa=True,
        seqused_k=totals[:-1],
    )
    return out.contiguous()


def attend_with_triton(*arguments: Any) -> torch.Tensor:
    """Triton, in one launch, for all passes; it is imported only if it is used."""
    from decoders.engine.attention.kernels import attend_packed

    return attend_packed(*arguments)
