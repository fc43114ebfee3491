"""Runs to which results are added."""

from collections.abc import Generator
from contextlib import closing
from dataclasses import replace

from workbench.runs.events import Ended, Event, Finished
from workbench.runs.record import Run


def onto(earlier: Run | None, events: Generator[Event, None, None]) -> Generator[Event, None, None]:
    """The events of a study; if it adds to an earlier run, their runs hold the draws of both."""
    with closing(events):
        for event in events:
            if earlier is not None and isinstance(event, (Finished, Ended)):
                event = replace(event, run=pooled(earlier, event.run))
            yield event


def pooled(earlier: Run, more: Run) -> Run:
    """The earlier run with the results of another added: one more set of seeds for each decoder.

    Of the two laws it keeps the earlier one, so that all draws are counted in the same cells,
    unless an older version kept fewer prefixes. It keeps all prefixes that either law rules out.
    """
    repeat = 1 + max(result.repeat for result in earlier.results)
    results = [*earlier.results, *(replace(result, repeat=repeat) for result in more.results)]
    likely = max(([x for x in run.exact if x.p] for run in (earlier, more)), key=len)
    never = {tuple(x.tokens): x for run in (earlier, more) for x in run.exact if not x.p}
    return replace(
        earlier, results=results, exact=[*likely, *never.values()], cancelled=more.cancelled
    )
