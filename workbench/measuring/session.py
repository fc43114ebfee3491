"""A session runs a study: its jobs one after another, in cycles of timings, as they happen."""

import logging
import math
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Any

import torch

from decoders import Method, ModelPair, catalog
from decoders.process import light_heap
from workbench.engines.addresses import engines as named
from workbench.measuring import served
from workbench.measuring.job import measure
from workbench.measuring.meter import Meter, Watch, open_meter
from workbench.measuring.meter import watch as watching
from workbench.measuring.served import Engines, chosen, texts
from workbench.measuring.transcript import exact, impossible
from workbench.measuring.work import (
    Measured,
    Outputs,
    Update,
    Work,
    admit,
    encoded,
    parts_of,
    settled,
)
from workbench.models.keeper import Threads, environment
from workbench.runs import timing
from workbench.runs.draws import texts_of
from workbench.runs.events import At, Ended, Event, Finished, Progress, Started
from workbench.runs.figures import rows, uncertain
from workbench.runs.record import Agreement, Lap, Prefix, Result, Run, TokenRecord, date
from workbench.runs.store import new_id
from workbench.studies.settings import is_engine
from workbench.studies.study import BASELINE, Job, Study, in_turn

# Seconds of computing, over all timings of a decoder, below which its speed means little.
LEAST_SECONDS = 0.5
MOST_MORE = 7  # timings of the one extension
PATIENCE_SECONDS = 6.0  # the most seconds that it takes


def extension(results: Sequence[Result], patience: float) -> int:
    """How many more timings of all these decoders may help to compare them; 0 if none.

    They help if one of them was timed for less than LEAST_SECONDS, or too unevenly. What is still
    uneven then is told: on a busy machine it would stay so.

    Args:
        results: the results so far, of at least one timing each
        patience: the seconds that the timings may take
    """
    if not results:
        return 0
    count = len(results[0].laps)
    least = min(sum(lap.seconds for lap in r.laps) for r in results)
    if least >= LEAST_SECONDS and not any(uncertain(row) for row in rows(results)):
        return 0
    takes = sum(r.laps[-1].seconds for r in results)
    wanted = math.ceil(LEAST_SECONDS * count / least) - count if least > 0 else MOST_MORE
    afforded = int(patience / takes) if takes > 0 else MOST_MORE
    return max(0, min(max(wanted, count), MOST_MORE, afforded))


class References:
    """The first outputs of each law.

    Later outputs of the same law, in any batch, are compared with them.

    Args:
        temperature: the study's
        dtype: of the target's weights
    """

    def __init__(self, temperature: float, dtype: str):
        self._temperature, self._dtype = temperature, dtype
        self._first: dict[tuple[Any, ...], tuple[Result, Outputs]] = {}

    def compare(self, job: Job, result: Result, outputs: Outputs) -> Agreement | None:
        """Compare a job's outputs with the first of its law.

        Args:
            outputs: the token ids of each prompt

        Returns:
            None if no other tokens must be the same, or if this is the first of its law
        """
        if result.error or result.cancelled:
            return None
        # At temperature 0 exact decoders write the tokens of greedy, except those that search;
        # others repeat their own, or those of the search whose beams they find, of the same seed.
        method = job.method.plain
        greedy = self._temperature == 0 and job.method.lossless and method is job.method
        method = catalog[BASELINE]() if greedy else method
        law = (method, 0 if greedy else job.seed)
        if law in self._first:
            return agreement(method.name, *self._first[law], result, outputs, self._dtype)
        if method == job.method:
            self._first[law] = result, outputs
        return None

    def greedy(self, job: Job) -> Sequence[int] | None:
        """The tokens of greedy decoding after a job's prompt, if it ran at temperature 0."""
        first = self._first.get((catalog[BASELINE](), 0))
        return first[1].get(0) if first and self._temperature == 0 else None


def agreement(
    name: str, reference: Result, expected: Outputs, result: Result, outputs: Outputs, dtype: str
) -> Agreement:
    """Compare two results prompt by prompt.

    The place of the first difference is known if both results kept their tokens. The noise is
    measured on the tokens before it, where both runs read the same log-probabilities in passes of
    different shapes; it is at least the rounding of one number of the dtype.

    Args:
        expected: its token ids by prompt
        outputs: its token ids by prompt
        dtype: of the target's weights
    """
    both = expected.keys() & outputs.keys()
    differing = [i for i in sorted(both) if list(expected[i]) != list(outputs[i])]
    if not differing or not (reference.alone.tokens and result.alone.tokens):
        return Agreement(name, len(both), len(differing), dtype=dtype)
    greedy, other = reference.alone.tokens, result.alone.tokens
    at = next(
        (i for i, (a, b) in enumerate(zip(greedy, other, strict=False)) if a.id != b.id), None
    )
    likely = [(_likely(a), _likely(b)) for a, b in zip(greedy[:at], other[:at], strict=False)]
    apart = [abs(math.log(a[i]) - math.log(b[i])) for a, b in likely for i in a.keys() & b.keys()]
    noise, gap = max([torch.finfo(getattr(torch, dtype)).eps, *apart]), None
    if at is not None and {greedy[at].id, other[at].id} <= (p := _likely(greedy[at])).keys():
        gap = math.log(p[greedy[at].id] / p[other[at].id])
    place = min(len(greedy), len(other)) if at is None else at
    near_tie = gap is not None and gap <= 2 * noise
    return Agreement(name, len(both), len(differing), place, gap, noise, near_tie, dtype)


def _likely(token: TokenRecord) -> dict[int, float]:
    return {other.id: other.p for other in token.alternatives if other.p > 0}


def timed_again(
    result: Result, first: Measured, other: Measured, job: Job, temperature: float, number: int
) -> Result:
    """The result with one timing more, or with a sentence on why that does not count.

    Args:
        number: how many timings there are with this one
    """
    count = len(result.laps)
    before = f"the {count} before it count{'' if count > 1 else 's'}."
    lengths = [sum(map(len, each.outputs.values())) for each in (first, other)]
    if other.result.errors:
        remark = f"Timing {number} failed ({other.result.errors[0]}); {before}"
    # Decoders draw the same tokens with the same seed; a server may not.
    elif is_engine(job.method.name) and lengths[0] != lengths[1]:
        remark = f"Timing {number} wrote {lengths[1]} tokens, not {lengths[0]}; {before}"
    else:
        # A decoder that watches the clock may draft differently each time, and then draws other
        # tokens of the same law.
        watches_clock = getattr(job.method, "draft_length", None) == "auto" and temperature > 0
        same = watches_clock or dict(first.outputs) == dict(other.outputs)
        again = first.rounds == other.rounds
        (lap,) = other.result.laps
        laps = [*result.laps, replace(lap, same_rounds=again, same_tokens=same)]
        return replace(result, laps=laps, **timed(result.metrics, laps))
    return replace(result, remarks=[*result.remarks, remark])


def timed(metrics: Mapping[str, Any], laps: Sequence[Lap]) -> dict[str, Any]:
    """A result's metrics and its energy, with seconds and joules estimated from all laps."""
    spent, seconds = timing.energy(laps), timing.whole(laps)
    new: dict[str, Any] = {
        **metrics,
        "seconds": seconds,
        "decode_seconds": timing.after_first(laps),
        "joules": spent.joules,
        "energy_source": spent.source,
    }
    if seconds and new.get("new_tokens") is not None:
        new["tokens_per_second"] = new["new_tokens"] / seconds
    return {"metrics": new, "energy": spent}


SOON = 0.3  # of a job, before which nobody can tell how long the others take
log = logging.getLogger(__name__)


def run(
    pair: ModelPair,
    study: Study,
    *,
    meter: Meter | None = None,
    threads: Threads | None = None,
    watch: Watch | None = None,
    cancel: threading.Event | Callable[[], bool] | None = None,
    patience: float = 0.0,
    engines: Engines = named,
) -> Generator[Event, None, None]:
    """Run the jobs of a study, and yield events of plain data; the last is an `Ended` with the run.

    A job that fails has its error in its result, and the others continue. Cancelling ends the study
    within one forward pass and still gives the run so far; closing the iterator ends it without
    one. Either way all memory is given back. Every job is timed `settings.timings` times; the first
    time its text is shown as it grows, the others draw nothing.

    Args:
        meter: by default the best one for the target's device
        threads: the number of threads that the caller has set, and why, for the run's environment
        watch: reads the machine's counters; by default the real ones
        cancel: when set, or when it returns True, the study ends
        patience: the most seconds of one extension of the timing, for decoders that were timed too
            briefly or too unevenly to be compared; with `timings` set to 1, there is none
        engines: gives the engines that may be asked, by name; by default those of the environment

    Raises:
        InputError: at the call, before any work, if the pair cannot run the study
    """
    cancelled: Any = getattr(cancel, "is_set", cancel) or (lambda: False)
    study = settled(pair, study)
    prompts = encoded(pair, study)
    for note in dict.fromkeys(note for each in prompts for note in each.notes):
        log.warning(note)
    ids, parts = admit(pair, study, prompts), [each.parts for each in prompts]
    device = pair.target.device
    watch = watch or watching(device)
    gauge, outside = meter or open_meter(device), (texts(study), chosen(study, engines))
    work = Work(pair, ids, study.settings, gauge, watch, cancelled, *outside, parts=parts)
    where = environment(pair, threads)
    empty = Run(new_id(), date(), study.kind, study.title, study.to_json(), where, [])
    return _Session(study, work, empty, patience).events()


class _Session:
    def __init__(self, study: Study, work: Work, run: Run, patience: float):
        self.study, self.work, self.empty, self.patience = study, work, run, patience
        self.jobs = study.jobs()
        self.references = References(study.settings.temperature, run.environment["dtype"])
        # By the numbers of jobs, in the order in which they ran: their first laps, their results.
        self.first: dict[int, Measured] = {}
        self.results: dict[int, Result] = {}
        self.over: set[int] = set()  # jobs that are not timed again
        self.warm: set[tuple[Method, int]] = set()  # decoders, and the batch sizes they ran at

    @property
    def run(self) -> Run:
        return replace(self.empty, results=list(self.results.values()), exact=self.law)

    def events(self) -> Generator[Event, None, None]:
        with light_heap():
            self.began = time.monotonic()
            self.law = self._law(exact)
            for number, lap in self._order():
                if self.work.cancelled():
                    break
                if number in self.over:
                    continue
                yield from self._timed(number, lap)
                if any(r.cancelled for r in self.results.values()):
                    break
            run = self.run
            stopped = len(self.first) < len(self.jobs) or any(r.cancelled for r in run.results)
            yield Ended(replace(run, cancelled=stopped))

    def _order(self) -> Iterator[tuple[int, int]]:
        """The timings of a study, in order: the number of the job, and the lap.

        First come all jobs once: the study has its texts then, and the rest is timing. The jobs of
        one repeat run in cycles, all of them alike.
        """
        yield from ((number, 0) for number in range(len(self.jobs)))
        for _, block in groupby(range(len(self.jobs)), lambda i: self.jobs[i].repeat):
            numbers = list(block)
            for lap in chain(range(1, self.study.settings.timings), self._more(numbers)):
                yield from ((number, lap) for number in in_turn(numbers, lap))

    def _more(self, numbers: Sequence[int]) -> Iterator[int]:
        """The laps beyond those that the settings ask for, if comparing these jobs needs them."""
        usual = self.study.settings.timings
        if usual > 1 and not self.work.cancelled():
            results = [r for n, r in self.results.items() if n in numbers and n not in self.over]
            more = extension(results, self.patience)
            self.patience -= more * sum(r.laps[-1].seconds for r in results)
            yield from range(usual, usual + more)

    def _law(self, ask: Callable[..., list[Prefix]], *more: Any) -> list[Prefix]:
        """The law that draws are compared with; [] for other studies.

        If it fails, the draws are shown all the same.
        """
        if not self.study.has_law or self.work.cancelled():
            return []
        try:
            return ask(self.work.pair, self.study, self.work.ids[0], *more)
        except Exception:
            log.exception("the exact probabilities of draws failed")
            return []

    def _timed(self, number: int, lap: int) -> Iterator[Event]:
        job, settings = self.jobs[number], self.study.settings
        at = At(
            job.method.name, job.repeat, job.batch_size, job.scheme, number, len(self.jobs), lap,
            max(lap + 1, settings.timings),
        )  # fmt: skip
        yield Started(at, self._eta(at), parts_of(self.work, 0))
        # Texts that are only read need no warm-up, which would be half of the work of draws:
        # nothing compares their speeds. Where a text is timed again, that is warm anyway; what
        # a server does for a first request is not ours to guess.
        decoder, here = (job.method, job.batch_size), not is_engine(job.method.name)
        cold = lap == 0 and job.keep != "text" and decoder not in self.warm
        cold = cold and (settings.timings == 1 or not here)
        if cold:
            self.warm.add(decoder)
        # Later laps exist to be timed without drawing.
        order, shows = (replace(job, keep="lengths") if lap else job), not lap
        if here:
            running = measure(self.work, order, cold=cold, shows=shows)
        else:
            greedy = self.references.greedy(job)
            running = served.measure(self.work, order, cold=cold, shows=shows, greedy=greedy)
        measured = yield from self._shown(at, running)
        result = measured.result
        shown = job.keep == "trace" or (job.keep == "text" and texts_of([result]))
        # It was stopped within a batch, or between two of them. Half a measurement is useless; half
        # a text with a token is worth showing.
        missing = len(result.samples) < len(self.work.ids)
        if (result.cancelled or (result.error is None and missing)) and (lap or not shown):
            return
        if result.errors or result.cancelled:
            self.over.add(number)
        if lap:
            first, temperature = self.first[number], settings.temperature
            result = timed_again(self.results[number], first, measured, job, temperature, lap + 1)
        else:
            agreement = self.references.compare(job, result, measured.outputs)
            result = replace(result, agreement=result.agreement or agreement)
            self.first[number] = measured
            new = replace(self.run, results=[result])
            self.law = [*self.law, *self._law(impossible, new)]
        self.results[number] = result
        yield Finished(at, result, self.run)

    def _shown(
        self, at: At, measuring: Generator[Update, None, Measured]
    ) -> Generator[Event, None, Measured]:
        # The last batch is filled up.
        requests = -(-len(self.work.ids) // at.batch_size) * at.batch_size
        budget = self.study.settings.max_new_tokens * requests
        while True:
            try:
                update = next(measuring)
            except StopIteration as over:
                return over.value
            eta = self._eta(at, min(1.0, update.done / budget))
            yield Progress(
                at, update.done, budget, update.tokens, update.rounds, update.provisional, eta,
                update.seconds,
            )  # fmt: skip

    def _eta(self, at: At, part: float = 0.0) -> float | None:
        done, jobs = len(self.first) + part, len(self.jobs)
        if at.lap or done < SOON:
            return None
        return (time.monotonic() - self.began) * max(0.0, jobs - done) / done
