"""How often and in which order the decoders of a study are timed."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count, groupby

from workbench.runs.estimates import rows, uncertain
from workbench.runs.laps import disturbances
from workbench.runs.record import Result
from workbench.studies.study import Job

LEAST_SECONDS = 0.5  # of computing, over all timings of a decoder, before its speed means anything
BUSY_LAPS = 10  # from here on other programs that the machine's counters speak of will stay
MOST_LAPS = 30  # from here on it is the machine that is uneven
PATIENCE_SECONDS = 20.0  # that a visitor waits for timings beyond those asked for


def laps_in_order(jobs: Sequence[Job], once_more: Callable[[Sequence[int], int], bool]) -> Iterator[tuple[int, int]]:
    """(job's number, lap): the jobs of one repeat in cycles while `once_more(numbers, lap)`, every second cycle in reverse order, so that a
    machine that gets slower or faster favours nobody."""
    for _, block in groupby(range(len(jobs)), lambda i: jobs[i].repeat):
        numbers = list(block)
        for lap in count():
            if not once_more(numbers, lap):
                break
            yield from ((number, lap) for number in (reversed(numbers) if lap % 2 else numbers))


def needs_more_laps(results: Sequence[Result]) -> bool:
    """Whether one of these decoders was timed for less than LEAST_SECONDS, or too unevenly, and it may still help to time them all again."""
    if not results or len(results[0].laps) >= MOST_LAPS:
        return False
    if len(results[0].laps) >= BUSY_LAPS and any(disturbances(r) for r in results):
        return False
    short = min(sum(lap.seconds for lap in r.laps) for r in results) < LEAST_SECONDS
    return short or any(uncertain(row) for row in rows(results))
