"""Packed attention in Triton; imported only if Triton is used.

One launch attends with the chains of all requests, and one with their trees. Another joins the
splits of their rows. A token's result has the same bits in a chain, in a tree and in any pass: only
the rows that it sees count, in the order of its text from the first of them on, and each split
takes the same ones of them.
"""

import torch
import triton
import triton.language as tl

STAGES = 2  # blocks of keys and values in flight
EVERYTHING = 2**30  # rows
SHORT = tl.constexpr(256)  # tokens of a chain; more keep a GPU busy by themselves
# Few tokens keep few programs busy, so their rows are split among several (Dao et al. 2023,
# Flash-Decoding): a split takes every sixteenth block of rows, however long the text is.
# The blocks begin with the first row that a token sees, so that in a window, whose rows have other
# numbers once earlier ones are given back, they hold the same part of the text.
SPLITS = tl.constexpr(16)
# Instead of -inf, which gives NaN for a block of rows of which a token sees none.
LOWEST = tl.constexpr(-3.4028235e38)


@triton.jit
def rows_seen(n, total, first, window, TOKENS: tl.constexpr):
    """The begin and end of the rows that TOKENS tokens of a chain from `first` on see."""
    begin = tl.maximum(total - n + first - window + 1, 0)
    return begin, tl.minimum(total, total - n + first + TOKENS)


@triton.jit
def request_of(table, token, requests):
    """The request that a token belongs to: how many end before it; `requests` for nobody's."""
    request = 0
    for start in range(0, requests, 64):
        other = start + tl.arange(0, 64)
        end = tl.load(table + other + 1, mask=other < requests, other=2**30)
        request += tl.sum((end <= token).to(tl.int32))
    return request


@triton.jit
def first_slot(table, request, requests):
    """The first slot of a request's partial results, after those of the requests before."""
    slot = 0
    for start in range(0, request, 64):
        other = start + tl.arange(0, 64)
        before = other < request
        n = tl.load(table + other + 1, mask=before, other=0) - tl.load(
            table + other, mask=before, other=0
        )
        masked = tl.load(table + 3 * (requests + 1) + other, mask=before, other=-1) >= 0
        slot += tl.sum(tl.where((n <= SHORT) | masked, n, 0))
    return slot


@triton.jit(do_not_specialize=["requests"])
def ancestors(masks, table, order, counts, requests):
    """For a token of a tree, write the rows of its mask that it sees, and how many they are.

    Nodes have rows in the order in which they came, so a token's ancestors are in the order of its
    text.
    """
    place = tl.program_id(0)
    request = request_of(table, place, requests)
    if request >= requests:
        return
    mask_start = tl.load(table + 3 * (requests + 1) + request).to(tl.int64)
    if mask_start < 0:
        return
    opening = tl.load(table + 4 * (requests + 1) + request)
    width = tl.load(table + 2 * (requests + 1) + request) - opening
    line = mask_start + (place - tl.load(table + request)) * width
    count = 0
    for start in range(0, width, 64):
        row = start + tl.arange(0, 64)
        seen = (tl.load(masks + line + row, mask=row < width, other=0) != 0).to(tl.int32)
        rank = count + tl.cumsum(seen, 0) - seen
        tl.store(order + line + rank, opening + row, mask=seen != 0)
        count += tl.sum(seen)
    tl.store(counts + place, count)


@triton.jit(do_not_specialize=["requests", "window", "splits", "fewest", "most"])
def kernel(
    q,
    keys,
    values,
    table,
    order,
    counts,
    sinks,
    out,
    parts,
    requests,
    splits,
    scale,
    window,
    fewest,
    most,
    q_head,
    q_token,
    q_size,
    TREE: tl.constexpr,
    SPLIT: tl.constexpr,
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
    """Attend with TOKENS tokens of one request to the rows of one of `splits` splits.

    Chains that have fewer tokens than `fewest`, or more than `most`, are left out: a row's bits
    do not depend on how many tokens another request has. The GROUPS query heads of one key
    head are computed together, in LANES lanes. The softmax is computed online, in float32. If rows
    are not split, the result goes to `out`, otherwise to `parts`: the sum of the values, their
    weight and the highest score.

    Args:
        order: of trees, the rows of each mask that its token sees
        counts: of trees, how many they are by token
        parts: partial results, (slots, heads, splits, VALUE_SIZE + 2)
        window: how many rows a token of a chain sees
        TREE: whether requests have masks; then TOKENS is 1

    Source:
        Dao et al. 2022, FlashAttention: Fast and Memory-Efficient Exact Attention with
            IO-Awareness, algorithm 1
    """
    first, request = tl.program_id(0) * TOKENS, tl.program_id(2)
    head, split = tl.program_id(1) % KEY_HEADS, tl.program_id(1) // KEY_HEADS
    start = tl.load(table + request)
    n = tl.load(table + request + 1) - start
    mask_start = tl.load(table + 3 * (requests + 1) + request).to(tl.int64)
    if (first >= n) | ((mask_start >= 0) != TREE) | (n < fewest) | (n > most):
        return
    base = tl.load(table + requests + 1 + request).to(tl.int64)
    total = tl.load(table + 2 * (requests + 1) + request)
    opening = tl.load(table + 4 * (requests + 1) + request)
    begin, end = rows_seen(n, total, first, window, TOKENS)
    begin = tl.where(TREE, 0, begin)
    if TREE:
        end = opening + tl.load(counts + start + first)
    if SPLIT:
        begin += split * ROWS
    if begin >= end:
        return

    line = tl.arange(0, TOKENS * LANES)
    token, lane = first + line // LANES, line % LANES
    real = (token < n) & (lane < GROUPS)
    query_head = head * GROUPS + lane
    k = tl.arange(0, KEY_BLOCK)
    v = tl.arange(0, VALUE_BLOCK)
    places = (
        q + query_head[:, None] * q_head + (start + token)[:, None] * q_token + k[None, :] * q_size
    )
    query = tl.load(places, mask=real[:, None] & (k < KEY_SIZE)[None, :], other=0.0)
    highest = tl.full([TOKENS * LANES], LOWEST, tl.float32)
    weight = tl.zeros([TOKENS * LANES], tl.float32)
    # A sink is the first row that a softmax sees; it has no value. `join` adds it to splits.
    if SINKS and not SPLIT:
        highest = tl.load(sinks + query_head, mask=real, other=0.0).to(tl.float32)
        weight += 1.0
    result = tl.zeros([TOKENS * LANES, VALUE_BLOCK], tl.float32)
    for row in range(begin, end, ROWS * SPLITS if SPLIT else ROWS):
        rows = row + tl.arange(0, ROWS)
        inside = rows < end
        held = rows
        if TREE:
            line_start = mask_start + first * (total - opening) - opening
            later = tl.load(order + line_start + rows, mask=inside & (rows >= opening), other=0)
            held = tl.where(rows < opening, rows, later)
        place = (base + held) * KEY_HEADS + head
        key = tl.load(
            keys + place[None, :] * KEY_SIZE + k[:, None],
            mask=inside[None, :] & (k < KEY_SIZE)[:, None],
            other=0.0,
        )
        scores = tl.dot(query, key, input_precision="ieee") * scale
        if SOFTCAP > 0:
            scores = SOFTCAP * (2 * tl.sigmoid(scores * (2 / SOFTCAP)) - 1)  # tanh
        # Of a tree's token, all that is left are ancestors.
        last = tl.where(TREE, end, total - n + token)
        least = tl.where(TREE, -1, last - window)
        visible = (
            (rows[None, :] <= last[:, None]) & (rows[None, :] > least[:, None]) & inside[None, :]
        )
        scores = tl.where(visible, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        shrink = tl.exp(highest - higher)
        part = tl.exp(scores - higher[:, None])
        value = tl.load(
            values + place[:, None] * VALUE_SIZE + v[None, :],
            mask=inside[:, None] & (v < VALUE_SIZE)[None, :],
            other=0.0,
        )
        result = result * shrink[:, None] + tl.dot(
            part.to(value.dtype), value, input_precision="ieee"
        )
        weight = weight * shrink + tl.sum(part, 1)
        highest = higher
    stored = real[:, None] & (v < VALUE_SIZE)[None, :]
    if SPLIT:
        slot = (first_slot(table, request, requests) + token) * KEY_HEADS * GROUPS + query_head
        place = (slot.to(tl.int64) * splits + split) * (VALUE_SIZE + 2)
        tl.store(parts + place[:, None] + v[None, :], result, mask=stored)
        tl.store(parts + place + VALUE_SIZE, weight, mask=real)
        tl.store(parts + place + VALUE_SIZE + 1, highest, mask=real)
    else:
        goals = (
            out
            + ((start + token) * KEY_HEADS * GROUPS + query_head)[:, None] * VALUE_SIZE
            + v[None, :]
        )
        tl.store(goals, result / weight[:, None], mask=stored)


@triton.jit(do_not_specialize=["requests", "window", "splits"])
def join(
    parts,
    table,
    counts,
    sinks,
    out,
    requests,
    splits,
    window,
    SINKS: tl.constexpr,
    HEADS: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    VALUE_BLOCK: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Join the splits of one token and one head, if its request is a tree or a short chain.

    `kernel` wrote those that have rows for its block of TOKENS; the others weigh nothing.
    """
    place, head = tl.program_id(0), tl.program_id(1)
    request = request_of(table, place, requests)
    if request >= requests:
        return
    start = tl.load(table + request)
    n, token = tl.load(table + request + 1) - start, place - start
    masked = tl.load(table + 3 * (requests + 1) + request) >= 0
    if (n > SHORT) & ~masked:
        return
    total = tl.load(table + 2 * (requests + 1) + request)
    begin, end = rows_seen(n, total, token // TOKENS * TOKENS, window, TOKENS)
    ancestry = tl.load(table + 4 * (requests + 1) + request) + tl.load(counts + place)
    end = tl.where(masked, ancestry, end)
    begin = tl.where(masked, 0, begin)
    v = tl.arange(0, VALUE_BLOCK)
    highest = tl.full([], LOWEST, tl.float32)
    weight = tl.full([], 0.0, tl.float32)
    if SINKS:
        highest = tl.load(sinks + head).to(tl.float32)
        weight += 1.0
    result = tl.zeros([VALUE_BLOCK], tl.float32)
    slot = (first_slot(table, request, requests) + token) * HEADS + head
    for split in range(splits):
        has = begin + split * ROWS < end
        part = parts + (slot.to(tl.int64) * splits + split) * (VALUE_SIZE + 2)
        top = tl.where(has, tl.load(part + VALUE_SIZE + 1), LOWEST)
        higher = tl.maximum(highest, top)
        shrink, share = tl.exp(highest - higher), tl.exp(top - higher)
        sums = tl.where(has, tl.load(part + v, mask=v < VALUE_SIZE, other=0.0), 0.0)
        result = result * shrink + sums * share
        weight = weight * shrink + tl.where(has, tl.load(part + VALUE_SIZE), 0.0) * share
        highest = higher
    tl.store(
        out + (place * HEADS + head) * VALUE_SIZE + v,
        result / weight,
        mask=v < VALUE_SIZE,
    )


def tiling(
    short: bool, alone: bool, groups: int, key_size: int, value_size: int, dtype: torch.dtype
) -> dict[str, int]:
    """The kernel's block sizes for trees and chains of at most SHORT tokens, or for longer ones.

    A matrix unit takes at least 16 lines, which are enough for single tokens and drafts; a token of
    a tree or in a window, which has rows of its own, gets them `alone`. With more lines the cache
    is read less often. If heads are larger than 128, 64 lines need too much shared memory on small
    GPUs (64 KB at capability 7.5). In float32, which has no matrix unit, 64 lines would make a
    kernel of 600 kB.
    """
    lanes = triton.next_power_of_2(groups)
    key_block, value_block = (max(16, triton.next_power_of_2(n)) for n in (key_size, value_size))
    largest = max(key_block, value_block)
    few = short or dtype == torch.float32
    lines = 16 if few else 64 if largest <= 128 else 32
    lanes = max(lanes, lines) if alone else lanes
    # Tiles have at most 16 KiB, so that two stages of keys and values fit into the shared memory of
    # small GPUs.
    rows = max(16, min(64, 2**14 // (largest * dtype.itemsize)))
    return {
        "TOKENS": max(1, lines // lanes),
        "LANES": lanes,
        "ROWS": rows,
        "KEY_BLOCK": key_block,
        "VALUE_BLOCK": value_block,
    }


def attend_packed(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    segments: torch.Tensor,
    table: torch.Tensor,
    masks: torch.Tensor,
    scale: float,
    softcap: float,
    window: int = 0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend in one layer, in float16, bfloat16 or float32.

    Nothing is read back from the device: the longest requests set the grid, and blocks after the
    end of a shorter request return at once. See `decoders.engine.attention.interface.attend_layer`,
    and its `Packing` for the tables.
    """
    heads, tokens, size = q.shape
    key_heads, value_size = values.shape[1:]
    groups, requests, seen = heads // key_heads, len(segments), window or EVERYTHING
    out = q.new_empty(tokens, heads, value_size)
    each = [
        (stop - start, past + stop - start, mask >= 0)
        for start, stop, _, past, mask, *_ in segments.tolist()
    ]
    trees = max((n for n, _, masked in each if masked), default=0)
    long = max((n for n, _, masked in each if not masked and n > SHORT.value), default=0)
    short = max((n for n, _, masked in each if not masked and n <= SHORT.value), default=0)
    totals = [total for n, total, masked in each if masked or n <= SHORT.value]
    sizes = groups, size, value_size, q.dtype
    tiles = tiling(True, window > 0, *sizes)
    splits = min(triton.cdiv(max(totals, default=0), tiles["ROWS"]), SPLITS.value)
    slots = min(sum(n for n, _, masked in each if masked or n <= SHORT.value), tokens)
    parts = torch.empty(
        slots * heads * splits * (value_size + 2), dtype=torch.float32, device=q.device
    )
    order, counts = (
        torch.empty(n, dtype=torch.int32, device=q.device)
        for n in (masks.numel() if trees else 1, tokens)
    )
    sunk = {"SINKS": sinks is not None}

    def launch(most: int, tiles: dict[str, int], fewest: int = 1, tree: bool = False) -> None:
        split = tree or most <= SHORT.value
        programs = triton.cdiv(most, tiles["TOKENS"]), key_heads * (splits if split else 1)
        kernel[*programs, requests](
            q, keys, values, table, order, counts, q if sinks is None else sinks, out, parts,
            requests, splits, scale, seen, fewest, most, *q.stride(), TREE=tree, SPLIT=split,
            SOFTCAP=softcap, **sunk, GROUPS=groups, KEY_HEADS=key_heads, KEY_SIZE=size,
            VALUE_SIZE=value_size, **tiles, num_stages=STAGES,
        )  # fmt: skip

    with torch.cuda.device_of(q):
        if long:
            launch(long, tiling(False, False, *sizes), fewest=SHORT.value + 1)
        if short:
            launch(short, tiles)
        if trees:
            ancestors[tokens,](masks.view(torch.uint8), table, order, counts, requests)
            launch(trees, tiling(True, True, *sizes), tree=True)
        if short or trees:
            join[tokens, heads](
                parts, table, counts, q if sinks is None else sinks, out, requests, splits, seen,
                **sunk, HEADS=heads, VALUE_SIZE=value_size, VALUE_BLOCK=tiles["VALUE_BLOCK"],
                TOKENS=tiles["TOKENS"], ROWS=tiles["ROWS"],
            )  # fmt: skip
    return out
