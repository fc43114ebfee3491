"""Packed attention in Triton; imported only if Triton is used.

One launch attends with the chains and trees of all requests, and a second one joins the parts into
which long texts were split.
"""

import torch
import triton
import triton.language as tl

STAGES = 2  # blocks of keys and values in flight
EVERYTHING = 2**30  # rows
# Few tokens keep few programs busy, so the rows that they see are split among several programs (Dao
# et al. 2023, Flash-Decoding).
SHORT = tl.constexpr(256)  # tokens of a request; more keep a GPU busy by themselves
SPLITS = tl.constexpr(16)  # at most
# The rows of a split are a multiple of PIECE, which is a multiple of every block of rows.
PIECE = tl.constexpr(64)
# Instead of -inf, which gives NaN for a block of rows of which a token sees none.
LOWEST = tl.constexpr(-3.4028235e38)


@triton.jit
def split_rows(n, total):
    """The number of the `total` rows that one program reads for a request of n tokens.

    It depends on that request alone, so the request's result does not depend on the batch.
    """
    return tl.where(n > SHORT, total, tl.cdiv(tl.cdiv(total, SPLITS), PIECE) * PIECE)


@triton.jit
def rows_seen(n, total, masked, first, window, TOKENS: tl.constexpr, ROWS: tl.constexpr):
    """The begin and end of the rows that TOKENS tokens from `first` on see.

    The block of tokens sees whole blocks of ROWS.
    """
    begin = tl.where(masked, 0, tl.maximum(total - n + first - window + 1, 0) // ROWS * ROWS)
    return begin, tl.where(masked, total, tl.minimum(total, total - n + first + TOKENS))


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
def first_slot(table, request):
    """The first slot of a request's partial results, after those of the short requests before."""
    slot = 0
    for start in range(0, request, 64):
        other = start + tl.arange(0, 64)
        before = other < request
        n = tl.load(table + other + 1, mask=before, other=0) - tl.load(
            table + other, mask=before, other=0
        )
        slot += tl.sum(tl.where(n <= SHORT, n, 0))
    return slot


@triton.jit(do_not_specialize=["requests", "window", "splits", "fewest", "most"])
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
    fewest,
    most,
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
    """Attend with TOKENS tokens of one request to the rows of one of `splits` splits.

    Requests that have fewer tokens than `fewest`, or more than `most`, are left out: a row's bits
    do not depend on how many tokens another request has. The GROUPS query heads of one key
    head are computed together, in LANES lanes. The softmax is computed online, in float32. With one
    split the result goes to `out`, otherwise to `parts`: the sum of the values, their weight and
    the highest score.

    Args:
        parts: partial results, (slots, heads, splits, VALUE_SIZE + 2)
        window: how many rows a token of a chain sees

    Source:
        Dao et al. 2022, FlashAttention: Fast and Memory-Efficient Exact Attention with
            IO-Awareness, algorithm 1
    """
    first, request = tl.program_id(0) * TOKENS, tl.program_id(2)
    head, split = tl.program_id(1) % KEY_HEADS, tl.program_id(1) // KEY_HEADS
    start = tl.load(table + request)
    n = tl.load(table + request + 1) - start
    if (first >= n) | (n < fewest) | (n > most):
        return
    base = tl.load(table + requests + 1 + request).to(tl.int64)
    total = tl.load(table + 2 * (requests + 1) + request)
    mask_start = tl.load(table + 3 * (requests + 1) + request).to(tl.int64)
    masked = mask_start >= 0
    begin, end = rows_seen(n, total, masked, first, window, TOKENS, ROWS)
    length = split_rows(n, total)
    # The first split that has rows also carries the sink.
    carries = begin // length == split
    begin = tl.maximum(begin, split * length)
    end = tl.minimum(end, (split + 1) * length)
    if begin >= end:
        return
    # The mask says which tokens see the rows from `opening` to `closing`.
    opening = tl.load(table + 4 * (requests + 1) + request)
    closing = tl.where(masked, end, 0)

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
    # A sink is the first row that a softmax sees; it has no value.
    if SINKS:
        sink = tl.load(sinks + query_head, mask=real, other=0.0).to(tl.float32)
        highest = tl.where(carries, sink, highest)
        weight = tl.where(carries, 1.0, weight)
    result = tl.zeros([TOKENS * LANES, VALUE_BLOCK], tl.float32)
    for row in range(begin, end, ROWS):
        rows = row + tl.arange(0, ROWS)
        inside = rows < end
        place = (base + rows) * KEY_HEADS + head
        key = tl.load(
            keys + place[None, :] * KEY_SIZE + k[:, None],
            mask=inside[None, :] & (k < KEY_SIZE)[:, None],
            other=0.0,
        )
        scores = tl.dot(query, key, input_precision="ieee") * scale
        if SOFTCAP > 0:
            scores = SOFTCAP * (2 * tl.sigmoid(scores * (2 / SOFTCAP)) - 1)  # tanh
        # There is no branch here: a boolean that is set inside an `if` and used after it does not
        # compile for capability 7.5.
        behind = real[:, None] & ((rows >= opening) & (rows < closing))[None, :]
        line_start = mask_start + token[:, None] * (total - opening) - opening
        mask = tl.load(masks + line_start + rows[None, :], mask=behind, other=1)
        last = tl.where(masked, total, total - n + token)
        least = tl.where(masked, -1, last - window)
        visible = (
            (mask != 0)
            & (rows[None, :] <= last[:, None])
            & (rows[None, :] > least[:, None])
            & inside[None, :]
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
    if splits == 1:
        goals = (
            out
            + ((start + token) * KEY_HEADS * GROUPS + query_head)[:, None] * VALUE_SIZE
            + v[None, :]
        )
        tl.store(goals, result / weight[:, None], mask=stored)
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
    """Join the splits of one token and one head, if its request is short.

    `kernel` wrote them for its block of TOKENS; they are joined as it joins blocks of ROWS.
    """
    place, head = tl.program_id(0), tl.program_id(1)
    request = request_of(table, place, requests)
    if request >= requests:
        return
    start = tl.load(table + request)
    n, token = tl.load(table + request + 1) - start, place - start
    if n > SHORT:
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
    tl.store(
        out + (place * HEADS + head) * VALUE_SIZE + v,
        result / weight,
        mask=v < VALUE_SIZE,
    )


def tiling(
    short: bool, groups: int, key_size: int, value_size: int, dtype: torch.dtype
) -> dict[str, int]:
    """The kernel's block sizes for requests of at most SHORT tokens, or for those of more.

    A matrix unit takes at least 16 lines, which are enough for single tokens and drafts; among all
    requests of so few tokens a row has the same bits. With more lines the cache is read less often.
    If heads are larger than 128, 64 lines need too much shared memory on small GPUs (64 KB at
    capability 7.5). In float32, which has no matrix unit, 64 lines would make a kernel of 600 kB.
    """
    lanes = triton.next_power_of_2(groups)
    key_block, value_block = (max(16, triton.next_power_of_2(n)) for n in (key_size, value_size))
    largest = max(key_block, value_block)
    few = short or dtype == torch.float32
    lines = 16 if few else 64 if largest <= 128 else 32
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
    biases: torch.Tensor,
    scale: float,
    softcap: float,
    window: int = 0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend as `decoders.engine.attention.interface.attend` does, in float16, bfloat16 or float32.

    Nothing is read back from the device: the longest requests set the grid, and blocks after the
    end of a shorter request return at once. The arguments are those of the ways to attend in
    `decoders.engine.attention.interface`.
    """
    heads, tokens, size = q.shape
    key_heads, value_size = values.shape[1:]
    out = q.new_empty(tokens, heads, value_size)
    counts = [(stop - start, past + stop - start) for start, stop, _, past, *_ in segments.tolist()]
    longest = max(n for n, _ in counts)
    short = [n for n, _ in counts if n <= SHORT.value]
    pieces = [triton.cdiv(total, PIECE.value) for n, total in counts if 0 < n <= SHORT.value]
    splits = min(max(pieces, default=1), SPLITS.value)
    slots = min(sum(short), tokens) if splits > 1 else 0
    parts = torch.empty(
        slots * heads * splits * (value_size + 2), dtype=torch.float32, device=q.device
    )

    def launch(splits: int, fewest: int, most: int) -> dict[str, int]:
        tiles = tiling(most <= SHORT.value, heads // key_heads, size, value_size, q.dtype)
        kernel[triton.cdiv(most, tiles["TOKENS"]), key_heads * splits, len(segments)](
            q, keys, values, table, masks.view(torch.uint8), q if sinks is None else sinks,
            out, parts, len(segments), splits, scale, window or EVERYTHING, fewest, most,
            *q.stride(), SOFTCAP=softcap, SINKS=sinks is not None, GROUPS=heads // key_heads,
            KEY_HEADS=key_heads, KEY_SIZE=size, VALUE_SIZE=value_size, **tiles, num_stages=STAGES,
        )  # fmt: skip
        return tiles

    with torch.cuda.device_of(q):
        if longest > SHORT.value:
            launch(1, SHORT.value + 1, longest)
        tiles = launch(splits, 1, max(short)) if any(short) else {}
        if splits > 1:
            join[tokens, heads](
                parts, table, out, len(segments), splits, window or EVERYTHING,
                HEADS=heads, VALUE_SIZE=value_size, VALUE_BLOCK=tiles["VALUE_BLOCK"],
                TOKENS=tiles["TOKENS"], ROWS=tiles["ROWS"],
            )  # fmt: skip
    return out
