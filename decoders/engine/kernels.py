"""Packed attention as one Triton kernel: chains and trees of all requests in one launch. Imported only if Triton is used."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def kernel(
    q,
    keys,
    values,
    table,
    masks,
    out,
    requests,
    scale,
    q_head,
    q_token,
    q_size,
    SOFTCAP: tl.constexpr,
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

    The softmax is computed online (Dao et al. 2022, FlashAttention, algorithm 1) in float32.
    """
    first, head, request = tl.program_id(0) * TOKENS, tl.program_id(1), tl.program_id(2)
    start = tl.load(table + request)
    n = tl.load(table + request + 1) - start
    if first >= n:
        return
    base = tl.load(table + requests + 1 + request).to(tl.int64)
    total = tl.load(table + 2 * (requests + 1) + request)
    mask_start = tl.load(table + 3 * (requests + 1) + request).to(tl.int64)
    end = total if mask_start >= 0 else tl.minimum(total, total - n + first + TOKENS)

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
    result = tl.zeros([TOKENS * LANES, VALUE_BLOCK], tl.float32)
    for row in range(0, end, ROWS):
        rows = row + tl.arange(0, ROWS)
        inside = rows < end
        place = (base + rows) * KEY_HEADS + head
        key = tl.load(
            keys + place[None, :] * KEY_SIZE + k[:, None], mask=inside[None, :] & (k < KEY_SIZE)[:, None], other=0.0
        )
        scores = tl.dot(query, key, input_precision="ieee") * scale
        if SOFTCAP > 0:
            scores = SOFTCAP * (2 * tl.sigmoid(scores * (2 / SOFTCAP)) - 1)  # tanh
        if mask_start < 0:
            seen = rows[None, :] <= (total - n + token)[:, None]
        else:
            asked = real[:, None] & inside[None, :]
            seen = tl.load(masks + mask_start + token[:, None] * total + rows[None, :], mask=asked, other=1) != 0
        seen &= inside[None, :]
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


def attend_with_triton(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    segments: Tensor,
    table: Tensor,
    masks: Tensor,
    biases: Tensor,
    scale: float,
    softcap: float,
) -> Tensor:
    """The attention of `decoders.engine.attention.attend`, for float16, bfloat16 and float32.

    Nothing is read back from the device: the longest request sets the grid, and blocks after the end of a shorter one return at once.
    The cache is not split among programs, so a large GPU is mostly idle at batch 1 with few key heads.
    """
    heads, tokens, size = q.shape
    key_heads, value_size = values.shape[1:]
    out = q.new_empty(tokens, heads, value_size)
    longest = int((segments[:, 1] - segments[:, 0]).max())
    lanes = triton.next_power_of_2(heads // key_heads)
    # A matrix unit takes at least 16 lines: enough for single tokens and short drafts. With 64 the cache is read less often, but in
    # float32, which has no matrix unit, they would need too much shared memory and a kernel of 600 kB.
    short = longest * lanes <= 16 or q.dtype == torch.float32
    block = max(1, (16 if short else 64) // lanes)
    key_block, value_block = (max(16, triton.next_power_of_2(n)) for n in (size, value_size))
    # Tiles of at most 16 KiB, so that two stages of keys and values fit into the shared memory of small GPUs too.
    rows = max(16, min(64, 2**14 // (max(key_block, value_block) * q.element_size())))
    with torch.cuda.device_of(q):
        kernel[triton.cdiv(longest, block), key_heads, len(segments)](
            q,
            keys,
            values,
            table,
            masks.view(torch.uint8),
            out,
            len(segments),
            scale,
            *q.stride(),
            SOFTCAP=softcap,
            GROUPS=heads // key_heads,
            KEY_HEADS=key_heads,
            KEY_SIZE=size,
            VALUE_SIZE=value_size,
            TOKENS=block,
            LANES=lanes,
            ROWS=rows,
            KEY_BLOCK=key_block,
            VALUE_BLOCK=value_block,
            num_stages=2,
        )
    return out
