"""Draft lengths by load, and the flag that gives them to a server."""

import json
from collections.abc import Mapping


def schedule(lengths: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Ranges of loads with their draft length; a load in between has that of the load below it.

    Args:
        lengths: the draft length at each load, 0 where speculation does not pay

    Returns:
        (first load, last load, draft length) of each range; the last one is the largest load's
    """
    ranges: list[tuple[int, int, int]] = []
    for load, length in sorted(lengths.items()):
        if ranges and ranges[-1][2] == length:
            ranges[-1] = ranges[-1][0], load, length
            continue
        if ranges:
            ranges[-1] = ranges[-1][0], load - 1, ranges[-1][2]
        ranges.append((load if ranges else 1, load, length))
    return ranges


def vllm_flag(lengths: Mapping[int, int]) -> str:
    """The flag of vLLM that drafts so; the method and the draft model belong beside it.

    Args:
        lengths: the draft length at each load, 0 where speculation does not pay; one at least is
            above 0

    Source:
        vLLM 0.32.0: `num_speculative_tokens_per_batch_size` in `vllm/config/speculative.py`, read
        by `vllm/v1/spec_decode/dynamic/utils.py`; beyond the last range, its length holds.
    """
    fields: dict[str, object] = {"num_speculative_tokens": max(lengths.values())}
    ranges = schedule(lengths)
    if len(ranges) > 1:
        fields["num_speculative_tokens_per_batch_size"] = ranges
    return f"--speculative-config '{json.dumps(fields)}'"
