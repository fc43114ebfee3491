"""The launch of packed attention in Triton; imported only if Triton is used."""

import torch
import triton

from decoders.engine.attention.kernels import EVERYTHING, PIECE, SHORT, SPLITS, STAGES, join, kernel


def tiling(
    longest: int, groups: int, key_size: int, value_size: int, dtype: torch.dtype
) -> dict[str, int]:
    """The kernel's block sizes for a pass whose longest request has `longest` tokens.

    A matrix unit takes at least 16 lines, which are enough for single tokens and short drafts. With
    more lines the cache is read less often. If heads are larger than 128, 64 lines need too much
    shared memory on small GPUs (64 KB at capability 7.5). In float32, which has no matrix unit, 64
    lines would make a kernel of 600 kB.
    """
    lanes = triton.next_power_of_2(groups)
    key_block, value_block = (max(16, triton.next_power_of_2(n)) for n in (key_size, value_size))
    largest = max(key_block, value_block)
    lines = 16 if longest * lanes <= 16 or dtype == torch.float32 else 64 if largest <= 128 else 32
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
    """Attend as `decoders.engine.attention.operator.attend` does, in float16, bfloat16 or float32.

    Nothing is read back from the device: the longest requests set the grid, and blocks after the
    end of a shorter request return at once. The arguments are those of the ways to attend in
    `decoders.engine.attention.operator`.
    """
    heads, tokens, size = q.shape
    key_heads, value_size = values.shape[1:]
    out = q.new_empty(tokens, heads, value_size)
    counts = [(stop - start, past + stop - start) for start, stop, _, past, *_ in segments.tolist()]
    longest = max(n for n, _ in counts)
    tiles = tiling(longest, heads // key_heads, size, value_size, q.dtype)
    short = [n for n, _ in counts if n <= SHORT.value]
    pieces = [triton.cdiv(total, PIECE.value) for n, total in counts if 0 < n <= SHORT.value]
    splits = min(max(pieces, default=1), SPLITS.value)
    slots = min(sum(short), tokens) if splits > 1 else 0
    parts = torch.empty(
        slots * heads * splits * (value_size + 2), dtype=torch.float32, device=q.device
    )
    with torch.cuda.device_of(q):
        kernel[triton.cdiv(longest, tiles["TOKENS"]), key_heads * splits, len(segments)](
            q, keys, values, table, masks.view(torch.uint8), q if sinks is None else sinks,
            out, parts, len(segments), splits, scale, window or EVERYTHING, *q.stride(),
            SOFTCAP=softcap, SINKS=sinks is not None, GROUPS=heads // key_heads,
            KEY_HEADS=key_heads, KEY_SIZE=size, VALUE_SIZE=value_size, **tiles, num_stages=STAGES,
        )  # fmt: skip
        if splits > 1:
            join[max(short), heads, len(segments)](
                parts, table, out, len(segments), splits, window or EVERYTHING,
                HEADS=heads, VALUE_SIZE=value_size, VALUE_BLOCK=tiles["VALUE_BLOCK"],
                TOKENS=tiles["TOKENS"], ROWS=tiles["ROWS"],
            )  # fmt: skip
    return out
