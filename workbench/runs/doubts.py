"""The reasons why timings cannot be trusted: their range, the machine's counters, other tokens."""

from collections.abc import Callable

from workbench.runs.laps import Estimate, estimate, ratio
from workbench.runs.record import Result
from workbench.runs.timing import Load

LEAST_SHARE = 0.9  # the least share of a core for the decoding thread
MOST_PREEMPTED = 50.0  # per second
MOST_LOST = 0.02  # the most share of the time lost to throttling or to the hypervisor
MOST_PRESSURE = 0.6


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
    most = len(result.laps) / 2
    reasons = [
        says
        for says, disturbed in _DISTURBED.items()
        if sum(disturbed(lap.load) for lap in result.laps) > most
    ]
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


_DISTURBED: dict[str, Callable[[Load], bool]] = {
    "other programs kept the decoding thread from its core": lambda load: _below(
        load.cpu_share, LEAST_SHARE
    ),
    "other programs interrupted the decoder's threads": lambda load: _above(
        load.preempted, MOST_PREEMPTED
    ),
    "the container's CPU limit held the decoder back": lambda load: _above(
        load.throttled, MOST_LOST
    ),
    "the machine's host took cores away": lambda load: _above(load.stolen, MOST_LOST),
    "programs on this machine waited for a free core": lambda load: _above(
        load.pressure, MOST_PRESSURE
    ),
}


def _below(value: float | None, least: float) -> bool:
    return value is not None and value < least


def _above(value: float | None, most: float) -> bool:
    return value is not None and value > most
