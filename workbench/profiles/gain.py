"""What a method with a profile would gain on a server with these costs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workbench.profiles.costs import Steps
from workbench.profiles.profile import Curve, Point


@dataclass(frozen=True, slots=True)
class Gain:
    """The gain of a method at a load and a draft length.

    Attributes:
        requests: requests at once
        point: what the method's rounds write
        cost: a verification over a plain step
        times: the speed over the server's greedy decoding
        free: whether drafting is left out
    """

    requests: int
    point: Point
    cost: float
    times: float
    free: bool


def gains(
    curve: Curve, steps: Steps, loads: Sequence[int], drafting: float | None = None
) -> Iterator[Gain]:
    """The gain at each load and draft length whose cost is known.

    Args:
        curve: the method
        steps: the server's costs
        loads: numbers of requests at once
        drafting: seconds of a draft token over those of a plain step; None leaves drafting out

    Yields:
        the gains, load by load
    """
    for requests in loads:
        for point in curve.points:
            if (cost := steps.cost(requests, point.tokens)) is not None:
                whole = cost + (drafting or 0.0) * point.draft_length
                # Rounds without a draft are plain steps.
                plain = 1 - point.share
                times = (point.share * point.length + plain) / (point.share * whole + plain)
                yield Gain(requests, point, cost, times, drafting is None)


def best(found: Sequence[Gain]) -> dict[int, Gain]:
    """By load, the draft length that gains most."""
    most: dict[int, Gain] = {}
    for gain in found:
        if gain.requests not in most or gain.times > most[gain.requests].times:
            most[gain.requests] = gain
    return most


def needed(curves: Sequence[Curve], loads: Sequence[int]) -> int:
    """The largest number of requests at once whose step stands for a verification."""
    tokens = max(point.tokens for curve in curves for point in curve.points)
    return math.ceil(max(loads) * tokens)
