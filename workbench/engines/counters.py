"""Counters of draft tokens that a server keeps for all its requests, in Prometheus' text format.

Source:
    vLLM: `vllm/v1/spec_decode/metrics.py` (`SpecDecodingProm`). llama.cpp: `tools/server/
    server-task.cpp` (metrics of `server_task_result_metrics`), which has the same names.
"""

import re
from collections import Counter

from decoders.errors import InputError
from workbench.engines.record import Speculation

NAMES = {
    "spec_decode_num_drafts_total": "steps",
    "spec_decode_num_draft_tokens_total": "drafted",
    "spec_decode_num_accepted_tokens_total": "accepted",
}
LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{.*\})? ([0-9.eE+]+)")
Counts = Counter[str]


def read(text: str, prefix: str) -> Counts | None:
    """The counts, summed over the server's engines; None if it counts no drafts.

    Args:
        text: the answer of /metrics
        prefix: that of the names
    """
    found: Counts = Counter()
    for name, value in LINE.findall(text):
        if name.startswith(prefix) and (kind := NAMES.get(name[len(prefix) :])):
            try:
                found[kind] += int(float(value))
            except (ValueError, OverflowError):
                raise InputError("A counter of the server is no number.") from None
    return found if set(found) == set(NAMES.values()) else None


def between(before: Counts | None, after: Counts | None) -> Speculation | None:
    """What was counted meanwhile.

    It is None if nothing is counted, if the server began anew, or if the counts contradict each
    other, which must not discard what was measured beside them.
    """
    if before is None or after is None or any(after[kind] < before[kind] for kind in after):
        return None
    drafted, accepted, steps = (after[k] - before[k] for k in ("drafted", "accepted", "steps"))
    try:
        return Speculation(drafted, accepted, steps, of="server") if steps else None
    except InputError:
        return None
