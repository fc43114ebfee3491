"""The reasons why timings cannot be trusted: their range, the machine's counters, other tokens."""

import math

from workbench.runs.laps import Estimate, estimate, ratio
from workbench.runs.record import Result

# What a counter outside of its bounds, the least and the most, says of a lap. Shares are of a core
# for the decoding thread, and of the time that was lost; times are per second.
BOUNDS = {
    "cpu_share": (0.9, math.inf, "other programs kept the decoding thread from its core"),
    "preempted": (-math.inf, 50.0, "other programs interrupted the decoder's threads"),
    "throttled": (-math.inf, 0.02, "the container's CPU limit held the decoder back"),
    "stolen": (-math.inf, 0.02, "the machine's host took cores away"),
    "pressure": (-math.inf, 0.6, "programs on this machine waited for a free core"),
}


def wide(result: Result, base: Result | None) -> Estimate | None:
    """A result's speed, if its timings leave it too uncertain to be compared.

    Args:
        result: the result
        base: the result whose speed it is divided by, if it is another one

    Returns:
        None if the speed can be compared, or was timed once
    """
    found = (
        ratio(result, base)
        if base is not None and base is not result
        else estimate(result, lambda s: 1 / s)
    )
    return found if found is not None and found.laps > 1 and found.wide else None


def unsteady(result: Result, base: Result | None) -> list[str]:
    """The reasons why a result's speed cannot be trusted, in sentences.

    A single timing has no range, but it has counters.

    Args:
        result: the result
        base: the result that its speed is compared with
    """
    reasons = []
    if (found := wide(result, base)) is not None:
        share = max(found.high / found.value - 1, 1 - found.low / found.value)
        reasons.append(f"{found.laps} timings leave it uncertain by up to {share:.0%}")
    return reasons + disturbances(result)


def disturbances(result: Result) -> list[str]:
    """The objections of the machine's counters to the result's timings, in sentences."""
    reasons = []
    for counter, (least, most, says) in BOUNDS.items():
        values = [getattr(lap.load, counter) for lap in result.laps]
        disturbed = sum(value is not None and not least <= value <= most for value in values)
        if disturbed > len(values) / 2:
            reasons.append(says)
    return reasons + [lap.load.gpu for lap in result.laps if lap.load.gpu][:1]


def faults(result: Result) -> list[str]:
    """A sentence if timings with the same seed wrote other tokens, which must never happen."""
    differing = sum(not lap.same_tokens for lap in result.laps)
    return (
        [
            f"{differing} of {len(result.laps)} timings wrote tokens that differ from the first "
            "timing's, with the same seed"
        ]
        if differing
        else []
    )
