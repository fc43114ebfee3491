"""The number and the order of the timings of a study's decoders."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count, groupby

from workbench.runs.doubts import disturbances
from workbench.runs.estimates import rows, uncertain
from workbench.runs.record import Result
from workbench.studies.study import Job

# Seconds of computing, over all timings of a decoder, below which its speed means little.
LEAST_SECONDS = 0.5
BUSY_LAPS = 10  # if the counters still see other programs after this many, they will stay
MOST_LAPS = 30  # after this many, the machine itself is uneven
PATIENCE_SECONDS = 20.0  # the most seconds of timings beyond those that the study asks for


def laps_in_order(
    jobs: Sequence[Job], once_more: Callable[[Sequence[int], int], bool]
) -> Iterator[tuple[int, int]]:
    """The timings of a study, in order.

    The jobs of one repeat run in cycles, every second cycle in reverse order, so that a machine
    that gets slower or faster favours none of them.

    Args:
        jobs: the jobs of the study
        once_more: called with the numbers of a repeat's jobs and the lap; whether they run this lap

    Yields:
        (job's number, lap)
    """
    for _, block in groupby(range(len(jobs)), lambda i: jobs[i].repeat):
        numbers = list(block)
        for lap in count():
            if not once_more(numbers, lap):
                break
            yield from ((number, lap) for number in (reversed(numbers) if lap % 2 else numbers))


def needs_more_laps(results: Sequence[Result]) -> bool:
    """Whether it may help to time all these decoders again.

    It may if one of them was timed for less than LEAST_SECONDS, or too unevenly.
    """
    if not results or len(results[0].laps) >= MOST_LAPS:
        return False
    if len(results[0].laps) >= BUSY_LAPS and any(disturbances(r) for r in results):
        return False
    short = min(sum(lap.seconds for lap in r.laps) for r in results) < LEAST_SECONDS
    return short or any(uncertain(row) for row in rows(results))
