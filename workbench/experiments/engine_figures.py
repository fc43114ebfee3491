"""Figures of a server under load, each with an interval.

Sums over whole loads are resampled over timings, what each request has over prompts.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from workbench.experiments.figures import LEAST_ITEMS, Interval, figure, good, interval, resamples
from workbench.experiments.rows import Kept
from workbench.runs.estimates import number
from workbench.runs.record import Result, Sample

MILLISECONDS = 1e3
TAIL = 0.95
CHUNK = 100  # resamples that are looked at together


@dataclass(frozen=True)
class EngineFigure:
    """A figure.

    Attributes:
        name: its name
        meaning: its definition
        of: the figure of a cell; None if it is not known
    """

    name: str
    meaning: str
    of: Callable[[Kept], Interval | None]


def ratio(
    kept: Kept, above: Callable[[Result], float | None], below: Callable[[Result], float | None]
) -> Interval | None:
    """A sum over timings divided by another; None if a timing lacks either."""
    pairs = [(above(row.result), below(row.result)) for row in good(kept).values()]
    known = [(a, b) for a, b in pairs if a is not None and b]
    if not known or len(known) < len(pairs):
        return None
    sums = resamples(len(known)) @ np.array(known)
    return interval(sums[:, 0] / sums[:, 1])


def each_request(kept: Kept, value: Callable[[Sample], float | None]) -> Iterator[list[float]]:
    """The values of the requests that are resampled together: all timings of the same prompt.

    If there are too few prompts for an interval, each request is resampled alone.
    """
    found: dict[int, list[float]] = {}
    for row in good(kept).values():
        for sample in row.outputs:
            if (one := value(sample)) is not None:
                found.setdefault(sample.prompt, []).append(one)
    if len(found) >= LEAST_ITEMS:
        yield from found.values()
    else:
        yield from ([one] for values in found.values() for one in values)


def quantile(groups: Iterable[list[float]], share: float) -> Interval | None:
    """The least value that this share of all values does not exceed."""
    groups = list(groups)
    if not groups:
        return None
    values = np.array([value for group in groups for value in group])
    group_of = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    order = np.argsort(values)
    values, group_of, weights = values[order], group_of[order], resamples(len(groups))
    found = []
    for start in range(0, len(weights), CHUNK):
        sums = np.cumsum(weights[start : start + CHUNK, group_of], axis=1)
        found.append(values[(sums < share * sums[:, -1:]).sum(axis=1)])
    return interval(np.concatenate(found))


def first(sample: Sample) -> float | None:
    """Milliseconds to the first token; None if it came together with others."""
    whole = len(sample.arrivals) == 1 and sample.count != 1  # not streamed
    return MILLISECONDS * sample.arrivals[0] if sample.arrivals and not whole else None


def between(sample: Sample) -> float | None:
    """Milliseconds from one token to the next, on average: several may arrive at once.

    None if all came at once.
    """
    if len(sample.arrivals) < 2 or (sample.count or 0) < 2:
        return None
    return MILLISECONDS * (sample.arrivals[-1] - sample.arrivals[0]) / ((sample.count or 0) - 1)


def speed(sample: Sample) -> float | None:
    """Tokens/s of one request."""
    if not sample.arrivals or not sample.arrivals[-1]:
        return None
    return (sample.count or 0) / sample.arrivals[-1]


def metric(name: str) -> Callable[[Result], float | None]:
    return lambda result: number(result, name)


def _of_requests(value: Callable[[Sample], float | None], share: float) -> Callable:
    return lambda kept: quantile(each_request(kept, value), share)


def _written(result: Result) -> float | None:
    """The tokens that verifications wrote: those accepted, and one of the target for each."""
    accepted, steps = number(result, "accepted"), number(result, "verifications")
    return None if accepted is None or steps is None else accepted + steps


TOKENS_PER_SECOND = "tokens/s"
FIGURES = (
    EngineFigure(
        TOKENS_PER_SECOND, "output tokens of all requests, divided by the seconds of the load",
        lambda kept: figure(TOKENS_PER_SECOND, kept),
    ),
    EngineFigure(
        "tokens/s each", "of a single request, with the time of its prompt; median",
        _of_requests(speed, 0.5),
    ),
    EngineFigure(
        "first token, ms", "from the request to its first token; median", _of_requests(first, 0.5)
    ),
    EngineFigure("first token, 95%", "its 95th percentile", _of_requests(first, TAIL)),
    EngineFigure(
        "between tokens, ms",
        "from the first token of a request to its last, divided by the tokens after the first; "
        "median",
        _of_requests(between, 0.5),
    ),
    EngineFigure("between tokens, 95%", "its 95th percentile", _of_requests(between, TAIL)),
    EngineFigure(
        "acceptance length",
        "mean tokens of a verification: those accepted, and one of the target",
        lambda kept: ratio(kept, _written, metric("verifications")),
    ),
    EngineFigure(
        "accepted", "accepted draft tokens, divided by all draft tokens",
        lambda kept: ratio(kept, metric("accepted"), metric("drafted")),
    ),
)  # fmt: skip
