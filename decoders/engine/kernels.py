"""Packed attention as one Triton kernel: chains and trees of all requests in one launch. Imported only if Triton is used."""

import torch
import triton
import triton.language as tl
from torch import Tensor

STAGES = 2  # blocks of keys and values in flight
EVERYTHING = 2**30  # rows


@triton.jit(do_not_specialize=["requests", "window"])
def kernel(
    q,
    keys,
    values,
    table,
    masks,
    sinks,
    out,
    requests,
    scale,
    window,
    q_head,
    q_token,
    q_size,
    SOFTCAP: tl.constexpr,
    SINKS: tl.constexpr,
    GROUPS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    KEY_SIZE: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    TOKENS: tl.constexpr,
    LANES: tl.constexpr,
    ROWS: tl.constexpr,
    KEY_BLOCK: tl.constexpr,
    VALUE_BLOCK: tl.constexpr,
):
    """TOKENS tokens of one request with the GROUPS query heads (in LANES lanes) of one key head, over all rows they see.

    `window`: how many rows a token of a chain sees. The softmax is computed online (Dao et al. 2022, FlashAttention, algorithm 1) in float32.
    """
    first, head, request = tl.program_id(0) * TOKENS, tl.program_id(1), tl.program_id(2)
    start = tl.load(table + request)
    n = tl.load(table + request + 1) - start
    if first >= n:
        return
    base = tl.load(table + requests + 1 + request).to(tl.int64)
    total = tl.load(table + 2 * (requests + 1) + request)
    mask_start = tl.load(table + 3 * (requests + 1) + request).to(tl.int64)
    masked = mask_start >= 0
    end = tl.where(masked, total, tl.minimum(total, total - n + first + TOKENS))
    begin = tl.where(masked, 0, tl.maximum(total - n + first - window + 1, 0) // ROWS * ROWS)
    # The mask tells who sees the rows from `opening` up to `told`.
    opening = tl.load(table + 4 * (requests + 1) + request)
    told = tl.where(masked, end, 0)

    line = tl.arange(0, TOKENS * LANES)
    token, lane = first + line // LANES, line % LANES
    real = (token < n) & (lane < GROUPS)
    query_head = head * GROUPS + lane
    k = tl.arange(0, KEY_BLOCK)
    v = tl.arange(0, VALUE_BLOCK)
    places = q + query_head[:, None] * q_head + (start + token)[:, None] * q_token + k[None, :] * q_size
    query = tl.load(places, mask=real[:, None] & (k < KEY_SIZE)[None, :], other=0.0)
    # The least number rather than -inf: a block of rows of which a token sees none would give NaN.
    highest = tl.full([TOKENS * LANES], -3.4028235e38, tl.float32)
    weight = tl.zeros([TOKENS * LANES], tl.float32)
    if SINKS:  # the first row that a softmax sees, though it has no value
        highest = tl.load(sinks + query_head, mask=real, other=0.0).to(tl.float32)
        weight += 1.0
    result = tl.zeros([TOKENS * LANES, VALUE_BLOCK], tl.float32)
    for row in range(begin, end, ROWS):
        rows = row + tl.arange(0, ROWS)
        inside = rows < end
        place = (base + rows) * KEY_HEADS + head
        key = tl.load(
            keys + place[None, :] * KEY_SIZE + k[:, None], mask=inside[None, :] & (k < KEY_SIZE)[:, None], other=0.0
        )
        scores = tl.dot(query, key, input_precision="ieee") * scale
        if SOFTCAP > 0:
            scores = SOFTCAP * (2 * tl.sigmoid(scores * (2 / SOFTCAP)) - 1)  # tanh
        # Without a branch: a condition that leaves an `if` as a boolean does not compile for capability 7.5.
        asked = real[:, None] & ((rows >= opening) & (rows < told))[None, :]
        line_start = mask_start + token[:, None] * (total - opening) - opening
        mask = tl.load(masks + line_start + rows[None, :], mask=asked, other=1)
        last = tl.where(masked, total, total - n + token)
        least = tl.where(masked, -1, last - window)
        seen = (mask != 0) & (rows[None, :] <= last[:, None]) & (rows[None, :] > least[:, None]) & inside[None, :]
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        shrink = tl.exp(highest - higher)
        part = tl.exp(scores - higher[:, None])
        value = tl.load(
            values + place[:, None] * VALUE_SIZE + v[None, :],
            mask=inside[:, None] & (v < VALUE_SIZE)[None, :],
            other=0.0,
        )
        result = result * shrink[:, None] + tl.dot(part.to(value.dtype), value, input_precision="ieee")
        weight = weight * shrink + tl.sum(part, 1)
        highest = higher
    places = out + ((start + token) * KEY_HEADS * GROUPS + query_head)[:, None] * VALUE_SIZE + v[None, :]
    tl.store(places, result / weight[:, None], mask=real[:, None] & (v < VALUE_SIZE)[None, :])


def tiling(longest: int, groups: int, key_size: int, value_size: int, dtype: torch.dtype) -> dict[str, int]:
    """The kernel's block sizes for a pass whose longest request has `longest` tokens.

    A matrix unit takes at least 16 lines: enough for single tokens and short drafts. With more the cache is read less often. 64 lines
    are too many for the shared memory of small GPUs (64 KB at capability 7.5) if heads are larger than 128; and in float32, which
    has no matrix unit, 64 would make a kernel of 600 kB.
    """
    lanes = triton.next_power_of_2(groups)
    key_block, value_block = (max(16, triton.next_power_of_2(n)) for n in (key_size, value_size))
    largest = max(key_block, value_block)
    lines = 16 if longest * lanes <= 16 or dtype == torch.float32 else 64 if largest <= 128 else 32
    # Tiles of at most 16 KiB, so that two stages of keys and values fit into the shared memory of small GPUs too.
    rows = max(16, min(64, 2**14 // (largest * dtype.itemsize)))
    return {
        "TOKENS": max(1, lines // lanes),
        "LANES": lanes,
        "ROWS": rows,
        "KEY_BLOCK": key_block,
        "VALUE_BLOCK": value_block,
    }


def attend_packed(
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
    """The attention of `decoders.engine.attention.attend`, for float16, bfloat16 and float32.

    Nothing is read back from the device: the longest request sets the grid, and blocks after the end of a shorter one return at once.
    The cache is not split among programs, so a large GPU is mostly idle at batch 1 with few key heads.
    """
    heads, tokens, size = q.shape
    key_heads, value_size = values.shape[1:]
    out = q.new_empty(tokens, heads, value_size)
    longest = int((segments[:, 1] - segments[:, 0]).max())
    tiles = tiling(longest, heads // key_heads, size, value_size, q.dtype)
    with torch.cuda.device_of(q):
        kernel[triton.cdiv(longest, tiles["TOKENS"]), key_heads, len(segments)](
            q,
            keys,
            values,
            table,
            masks.view(torch.uint8),
            q if sinks is None else sinks,
            out,
            len(segments),
            scale,
            window or EVERYTHING,
            *q.stride(),
            SOFTCAP=softcap,
            SINKS=sinks is not None,
            GROUPS=heads // key_heads,
            KEY_HEADS=key_heads,
            KEY_SIZE=size,
            VALUE_SIZE=value_size,
            **tiles,
            num_stages=STAGES,
        )
    return out
