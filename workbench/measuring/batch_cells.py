"""What the requests of one cell add up to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import fmean

from decoders import Event, Result
from workbench.studies.batch import Job
from workbench.studies.batch_records import Cell


@dataclass
class Sample:
    """One request of a cell: the prompt's index; for each round the tokens that the output gained and those that were drafted;
    when it was admitted and when it ended."""

    prompt: int
    gained: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    result: Result | None = None
    span: tuple[float, float] | None = None

    @property
    def length(self) -> int:
        return sum(self.gained)

    def add(self, event: Event, now: float) -> None:
        if event.result is not None:
            self.result = event.result
            self.span = now - event.result.metrics.seconds, now
        if event.round is not None:
            self.gained.append(event.keep + len(event.append) - self.length)
            self.drafted.append(event.round.drafted)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one batch, those behind its first round, its rounds, and its requests in flight at most."""

    whole: float
    behind_first: float
    rounds: int
    at_once: int


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """How many intervals overlap at most; one that ends where another begins does not."""
    steps = sorted(step for began, ended in spans for step in ((began, 1), (ended, -1)))
    return max(accumulate(step for _, step in steps))


def cell(
    job: Job,
    apart: bool,
    samples: Sequence[Sample],
    times: Sequence[Times],
    law: str,
    tokens: dict[int, list[int]],
    expected: dict[int, list[int]],
) -> Cell:
    """What was measured; `apart` where prompts were read before any decoding, so that figures can leave them out."""
    metrics = [s.result.metrics for s in samples]
    ratios = [m.padding_ratio for m in metrics if m.padding_ratio is not None]
    return Cell(
        decoder=job.method.name,
        batch_size=job.size,
        way=job.way,
        repeat=job.repeat,
        seconds=sum(t.whole for t in times),
        new_tokens=sum(s.length for s in samples),
        decode_seconds=sum(t.behind_first for t in times) if apart else None,
        decode_tokens=sum(sum(s.gained[1:]) for s in samples) if apart else None,
        passes=sum(t.rounds - 1 for t in times) if apart else None,
        fed_tokens=sum(len(s.drafted[1:]) + sum(s.drafted[1:]) for s in samples),
        padded_tokens=sum(m.padded_tokens for m in metrics),
        padded_rows=sum(m.padded_rows for m in metrics),
        padding_ratio=fmean(ratios) if ratios else None,
        at_once=max(t.at_once for t in times),
        peak_cache_bytes=max(m.peak_cache_bytes for m in metrics),
        differing=sum(tokens[i] != expected[i] for i in tokens.keys() & expected.keys()),
        reference=law,
        errors=[str(s.result.error) for s in samples if s.result.error],
    )
