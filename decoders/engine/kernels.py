"""Packed attention in Triton: chains and trees of all requests in one launch, and one more that joins what long texts were split into.
Imported only if Triton is used."""

import torch
import triton
import triton.language as tl
from torch import Tensor

STAGES = 2  # blocks of keys and values in flight
EVERYTHING = 2**30  # rows
# Few tokens would keep few programs busy, so the rows that they see are split among several (Dao et al. 2023, Flash-Decoding).
SHORT = tl.constexpr(64)  # tokens of a request; more keep a GPU busy by themselves
SPLITS = tl.constexpr(16)  # at most
PIECE = tl.constexpr(64)  # rows of a split are a multiple of these, which are one of any block of rows
LOWEST = tl.constexpr(-3.4028235e38)  # rather than -inf: a block of rows of which a token sees none would give NaN


@triton.jit
def split_rows(n, total):
    """How many of `total` rows one program reads for a request of n tokens: a matter of that request alone, so that what it gets does
    not depend on the batch."""
    return tl.where(n > SHORT, total, tl.cdiv(tl.cdiv(total, SPLITS), PIECE) * PIECE)


@triton.jit
def rows_seen(n, total, masked, first, window, TOKENS: tl.constexpr, ROWS: tl.constexpr):
    """From where to where the rows lie that a block of TOKENS from the `first` on sees, in whole blocks of ROWS."""
    begin = tl.where(masked, 0, tl.maximum(total - n + first - window + 1, 0) // ROWS * ROWS)
    return begin, tl.where(masked, total, tl.minimum(total, total - n + first + TOKENS))


@triton.jit
def first_slot(table, request):
    """Where the partial results of a request's tokens lie: after those of the short requests before it."""
    slot = 0
    for start in range(0, request, 64):
        other = start + tl.arange(0, 64)
        before = other < request
        n = tl.load(table + other + 1, mask=before, other=0) - tl.load(table + other, mask=before, other=0)
        slot += tl.sum(tl.where(n <= SHORT, n, 0))
    return slot


@triton.jit(do_not_specialize=["requests", "window", "splits"])
def kernel(
    q,
    keys,
    values,
    table,
    masks,
    sinks,
    out,
    parts,
    requests,
    splits,
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
    """TOKENS tokens of one request with the GROUPS query heads (in LANES lanes) of one key head, over the rows of one of `splits` splits.

    `window`: how many rows a token of a chain sees. The softmax is computed online (Dao et al. 2022, FlashAttention, algorithm 1) in float32.
    With one split the result goes to `out`; otherwise that of a short request goes to `parts`, (slots, heads, splits, VALUE_SIZE + 2): the
    sum of the values, their weight and the highest score.
    """
    first, request = tl.program_id(0) * TOKENS, tl.program_id(2)
    head, split = tl.program_id(1) % KEY_HEADS, tl.program_id(1) // KEY_HEADS
    start = tl.load(table + request)
    n = tl.load(table + request + 1) - start
    if first >= n:
        return
    base = tl.load(table + requests + 1 + request).to(tl.int64)
    total = tl.load(table + 2 * (requests + 1) + request)
    mask_start = tl.load(table + 3 * (requests + 1) + request).to(tl.int64)
    masked = mask_start >= 0
    begin, end = rows_seen(n, total, masked, first, window, TOKENS, ROWS)
    length = split_rows(n, total)
    carries = begin // length == split  # the first split with rows is also that of the sink
    begin = tl.maximum(begin, split * length)
    end = tl.minimum(end, (split + 1) * length)
    if begin >= end:
        return
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
    highest = tl.full([TOKENS * LANES], LOWEST, tl.float32)
    weight = tl.zeros([TOKENS * LANES], tl.float32)
    if SINKS:  # the first row that a softmax sees, though it has no value
        sink = tl.load(sinks + query_head, mask=real, other=0.0).to(tl.float32)
        highest = tl.where(carries, sink, highest)
        weight = tl.where(carries, 1.0, weight)
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
    stored = real[:, None] & (v < VALUE_SIZE)[None, :]
    if (splits == 1) | (n > SHORT):
        places = out + ((start + token) * KEY_HEADS * GROUPS + query_head)[:, None] * VALUE_SIZE + v[None, :]
        tl.store(places, result / weight[:, None], mask=stored)
    else:
        slot = (first_slot(table, request) + token) * KEY_HEADS * GROUPS + query_head
        place = (slot.to(tl.int64) * splits + split) * (VALUE_SIZE + 2)
        tl.store(parts + place[:, None] + v[None, :], result, mask=stored)
        tl.store(parts + place + VALUE_SIZE, weight, mask=real)
        tl.store(parts + place + VALUE_SIZE + 1, highest, mask=real)


@triton.jit(do_not_specialize=["requests", "window", "splits"])
def join(
    parts,
    table,
    out,
    requests,
    splits,
    window,
    HEADS: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    VALUE_BLOCK: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """One token and head of a short request: the splits that `kernel` wrote for its block of TOKENS, put together as it puts blocks of ROWS."""
    token, head, request = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start = tl.load(table + request)
    n = tl.load(table + request + 1) - start
    if (token >= n) | (n > SHORT):
        return
    total = tl.load(table + 2 * (requests + 1) + request)
    masked = tl.load(table + 3 * (requests + 1) + request) >= 0
    begin, end = rows_seen(n, total, masked, token // TOKENS * TOKENS, window, TOKENS, ROWS)
    length = split_rows(n, total)
    v = tl.arange(0, VALUE_BLOCK)
    highest = tl.full([], LOWEST, tl.float32)
    weight = tl.full([], 0.0, tl.float32)
    result = tl.zeros([VALUE_BLOCK], tl.float32)
    slot = (first_slot(table, request) + token) * HEADS + head
    for split in range(begin // length, tl.cdiv(end, length)):
        part = parts + (slot.to(tl.int64) * splits + split) * (VALUE_SIZE + 2)
        top = tl.load(part + VALUE_SIZE + 1)
        higher = tl.maximum(highest, top)
        shrink, share = tl.exp(highest - higher), tl.exp(top - higher)
        result = result * shrink + tl.load(part + v, mask=v < VALUE_SIZE, other=0.0) * share
        weight = weight * shrink + tl.load(part + VALUE_SIZE) * share
        highest = higher
    tl.store(out + ((start + token) * HEADS + head) * VALUE_SIZE + v, result / weight, mask=v < VALUE_SIZE)


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

    Nothing is read back from the device: the longest requests set the grid, and blocks after the end of a shorter one return at once.
    """
    heads, tokens, size = q.shape
    key_heads, value_size = values.shape[1:]
    out = q.new_empty(tokens, heads, value_size)
    counts = [(stop - start, past + stop - start) for start, stop, _, past, *_ in segments.tolist()]
    longest = max(n for n, _ in counts)
    tiles = tiling(longest, heads // key_heads, size, value_size, q.dtype)
    short = [n for n, _ in counts if n <= SHORT.value]
    splits = max(
        (min(triton.cdiv(total, PIECE.value), SPLITS.value) for n, total in counts if 0 < n <= SHORT.value), default=1
    )
    slots = min(sum(short), tokens) if splits > 1 else 0
    parts = torch.empty(slots * heads * splits * (value_size + 2), dtype=torch.float32, device=q.device)
    with torch.cuda.device_of(q):
        kernel[triton.cdiv(longest, tiles["TOKENS"]), key_heads * splits, len(segments)](
            q,
            keys,
            values,
            table,
            masks.view(torch.uint8),
            q if sinks is None else sinks,
            out,
            parts,
            len(segments),
            splits,
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
        if splits > 1:
            join[max(short), heads, len(segments)](
                parts,
                table,
                out,
                len(segments),
                splits,
                window or EVERYTHING,
                HEADS=heads,
                VALUE_SIZE=value_size,
                VALUE_BLOCK=tiles["VALUE_BLOCK"],
                TOKENS=tiles["TOKENS"],
                ROWS=tiles["ROWS"],
            )
    return out
