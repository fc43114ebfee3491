"""Attention of packed tokens over unpadded caches, and its entry in the `transformers` attention registry.

One operator over plain tensors, so that a compiled pass has no graph break. A model calls it through `AttentionInterface` by the name
`NAME`; the packing is passed as the keyword argument `packing` of the model's forward.
"""

import inspect
import logging
import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from decoders.errors import NotPackedError, first_line

log = logging.getLogger("decoders")
NAME = "decoders_packed"
FLASH = (
    torch.version.cuda is not None
    and torch.backends.cuda.is_flash_attention_available()
    and {"seqused_k", "enable_gqa"} <= inspect.signature(varlen_attn).parameters.keys()
)
# Triton comes with CUDA builds of torch, and builds its launchers with a C compiler.
TRITON = find_spec("triton") is not None and any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")))


class Packing(NamedTuple):
    """How the tokens of one pass belong to requests.

    rows      (tokens,) the arena row for each token's key and value
    segments  (requests, 6) on the CPU: first token, token after the last, first arena row, rows in use before the pass, and the start
              of the request's part in `masks` and in `biases`, or -1 if it has none
    table     (4, requests + 1) int32 on the device, the same for kernels: first tokens and the end of the last; first arena rows; rows
              in use after the pass; starts in `masks`
    masks     the (tokens, rows) masks flattened, bool; a token sees the rows that are True. A chain that sees all before it has none
    biases    the same for attention request by request, made once for all layers: what is added to the scores, 0 or -inf,
              (groups * tokens, rows) flattened, with the mask repeated `groups` times. Single tokens and whole prompts have none
    keys, values   the arena's tensors by layer, (rows, K, D)
    """

    rows: Tensor
    segments: Tensor
    table: Tensor
    masks: Tensor
    biases: Tensor
    keys: list[Tensor]
    values: list[Tensor]


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
) -> Tensor:
    """q (H, tokens, D), k (K, tokens, D), v (K, tokens, D') -> (tokens, H, D').

    Writes k and v into their arena rows, then lets each request's tokens attend to that request's rows.
    """
    keys.index_copy_(0, rows, k.transpose(0, 1))
    values.index_copy_(0, rows, v.transpose(0, 1))
    while True:
        way = choose_way(q, values, segments, softcap)
        try:
            return way(q, keys, values, segments, table, masks, biases, scale, softcap)
        except Exception as error:  # of a compiler that lacks Python.h, of a driver, of a GPU that nobody has tested
            if way is attend_one_by_one or way in FAILED or isinstance(error, torch.OutOfMemoryError):
                raise
            FAILED.add(way)
            log.warning(
                "%s does not run here (%s); passes use slower attention.", way.__doc__.split(",")[0], first_line(error)
            )


FAILED: set[Callable[..., Tensor]] = set()  # what raised an error on this machine is not tried again


def choose_way(
    q: Tensor, values: Tensor, segments: Tensor, softcap: float, flash: bool = FLASH, triton: bool = TRITON
) -> Callable[..., Tensor]:
    """FlashAttention for chains and Triton for everything else, on CUDA devices that support them; otherwise request by request."""
    if not takes_kernels(q.device, q.dtype):
        return attend_one_by_one
    size = q.shape[-1]
    fits_flash = q.dtype != torch.float32 and size == values.shape[-1] and size % 8 == 0 and size <= 256 and not softcap
    if flash and attend_chains not in FAILED and fits_flash and bool((segments[:, 4] < 0).all()):
        return attend_chains
    return attend_with_triton if triton and attend_with_triton not in FAILED else attend_one_by_one


def takes_kernels(device: torch.device, dtype: torch.dtype) -> bool:
    return device.type == "cuda" and dtype != torch.float64 and torch.cuda.get_device_capability(device) >= (8, 0)


def needs_biases(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the attention of a pass may run request by request."""
    return not (TRITON and attend_with_triton not in FAILED and takes_kernels(device, dtype))


def attend_chains(q, keys, values, segments, table, masks, biases, scale, softcap) -> Tensor:
    """FlashAttention, in one call, for passes in which every request's tokens are a chain."""
    starts, bases, totals, _ = table
    count, past = (segments[:, 1] - segments[:, 0]), segments[:, 3]
    most = int(count.max())
    return varlen_attn(
        q.transpose(0, 1),
        keys,
        values,
        starts,
        bases,  # where each request's keys begin; seqused_k says how many there are, so there may be gaps between requests
        most,
        int((past + count).max()),
        scale=scale,
        # Causal, the last query aligned with the last key. A window would keep single tokens from split keys and packed groups.
        window_size=(-1, 0) if most > 1 else (-1, -1),
        enable_gqa=True,
        seqused_k=totals[:-1],
    ).contiguous()


def attend_with_triton(*arguments) -> Tensor:
    """Triton, in one launch, for all passes; it is imported only if it is used."""
    from decoders.engine.kernels import attend_packed

    return attend_packed(*arguments)


def attend_one_by_one(q, keys, values, segments, table, masks, biases, scale, softcap) -> Tensor:
    """A call of SDPA per request: on any device, in any dtype.

    The `groups` query heads that share a key head become queries of one head, so that no key is ever repeated.
    """
    heads, _, size = q.shape
    groups = heads // keys.shape[1]
    parts = []
    for start, stop, base, past, mask_start, bias_start in segments.tolist():
        n, total = stop - start, past + stop - start
        if n == 0:
            continue
        query = q[None, :, start:stop]
        key = keys[base : base + total].transpose(0, 1)[None]
        value = values[base : base + total].transpose(0, 1)[None]
        if bias_start < 0 and mask_start < 0 and past == 0 and n > 1 and not softcap:
            part = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=groups > 1)
        else:
            query = query.reshape(1, -1, groups * n, size)
            bias = None
            if bias_start >= 0:
                bias = biases[bias_start : bias_start + groups * n * total].view(groups * n, total)
            elif n > 1:  # without a bias if none are needed usually, or if they are the same for all prompts
                seen = q.new_ones(n, total, dtype=torch.bool).tril(past)
                if mask_start >= 0:
                    seen = masks[mask_start : mask_start + n * total].view(n, total)
                bias = q.new_zeros(n, total).masked_fill(~seen, float("-inf")).repeat(groups, 1)
            if softcap:
                scores = softcap * torch.tanh(query @ key.transpose(-1, -2) * (scale / softcap))
                scores = scores if bias is None else scores + bias
                part = scores.softmax(-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(value.dtype) @ value
            else:
                part = scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scale)
        parts.append(part.reshape(heads, n, -1))  # a copy if the kernel that SDPA took lays heads side by side
    return torch.cat(parts, 1).transpose(0, 1).contiguous()


attend_op = torch.library.custom_op("decoders::attend", attend, mutates_args=("keys", "values"))


@attend_op.register_fake
def _(q, k, v, keys, values, rows, segments, table, masks, biases, scale, softcap):
    return q.new_empty(q.shape[1], q.shape[0], v.shape[-1])


# Arguments that attention may ignore: they are in the packing, or have no effect without padding or gradients.
_IGNORED = frozenset({"dropout", "is_causal", "position_ids", "use_cache", "cache_position", "output_attentions", "output_hidden_states",
                      "output_router_logits", "return_dict", "sliding_window", "position_embeddings", "logits_to_keep"})  # fmt: skip


def only_known(others: dict[str, object]) -> None:
    """Raise NotPackedError if a model gives its attention something that packed attention does not model."""
    strange = sorted(k for k, v in others.items() if v is not None and k not in _IGNORED)
    if strange:
        raise NotPackedError(f"its attention takes {', '.join(strange)}, which the packed attention does not model")


def packed_attention(module, query, key, value, attention_mask, scaling=None, softcap=None, packing=None, **others):
    """The function in the registry: query (1, H, tokens, D), key and value (1, K, tokens, D) -> ((1, tokens, H, D), None)."""
    only_known({**others, "a mask": attention_mask})
    layer = module.layer_idx
    run = attend_op if torch.compiler.is_compiling() else attend
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = run(
        query[0],
        key[0],
        value[0],
        packing.keys[layer],
        packing.values[layer],
        packing.rows,
        packing.segments,
        packing.table,
        packing.masks,
        packing.biases,
        scale,
        softcap or 0.0,
    )
    return out[None], None


# There is no entry in the registry of masks: so models build none, nor do they search the positions for packed sequences.
AttentionInterface.register(NAME, packed_attention)
