"""A session runs a study: its jobs one after another, in cycles of timings, as they happen."""

import logging
import math
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from itertools import count, groupby
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


def laps_in_order(
    jobs: Sequence[Job], once_more: Callable[[Sequence[int], int], bool]
) -> Iterator[tuple[int, int]]:
    """The timings of a study, in order.

    First come all jobs once: the study has its texts then, and the rest is timing. The jobs of one
    repeat run in cycles.

    Args:
        once_more: called with the numbers of a repeat's jobs and the lap, from 1; whether they run
            this lap

    Yields:
        (job's number, lap)
    """
    yield from ((number, 0) for number in range(len(jobs)))
    for _, block in groupby(range(len(jobs)), lambda i: jobs[i].repeat):
        numbers = list(block)
        for lap in count(1):
            if not once_more(numbers, lap):
                break
            yield from ((number, lap) for number in in_turn(numbers, lap))


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
        self._found: dict[tuple[Any, ...], tuple[Result, Outputs]] = {}

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
        law = (method, 0 if greedy else job.seed, job.prompt)
        if law in self._found:
            return agreement(method.name, *self._found[law], result, outputs, self._dtype)
        if method == job.method:
            self._found[law] = result, outputs
        return None

    def greedy(self, prompt: int) -> Sequence[int] | None:
        """The tokens of greedy decoding after a prompt, once it has run at temperature 0."""
        for (method, _, _), (_, outputs) in self._found.items():
            if method.name == BASELINE and self._temperature == 0:
                return outputs.get(prompt)
        return None


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
    shorter = min(len(greedy), len(other))
    at = next(
        (i for i, (a, b) in enumerate(zip(greedy, other, strict=False)) if a.id != b.id), shorter
    )
    shared = _shared_log_probs(greedy[:at], other[:at])
    noise = max([torch.finfo(getattr(torch, dtype)).eps, *(abs(a - b) for a, b in shared)])
    gap = _gap(greedy[at], other[at].id) if at < shorter else None
    near_tie = gap is not None and gap <= 2 * noise
    return Agreement(name, len(both), len(differing), at, gap, noise, near_tie, dtype)


def _shared_log_probs(
    a: Sequence[TokenRecord], b: Sequence[TokenRecord]
) -> list[tuple[float, float]]:
    """The two log-probabilities of each token that both runs list at the same place."""
    pairs = []
    for x, y in zip(a, b, strict=True):
        there = {alternative.id: alternative.p for alternative in y.alternatives}
        pairs += [
            (math.log(o.p), math.log(there[o.id]))
            for o in x.alternatives
            if there.get(o.id, 0) > 0 < o.p
        ]
    return pairs


def _gap(token: TokenRecord, rival: int) -> float | None:
    p = {alternative.id: alternative.p for alternative in token.alternatives}
    return math.log(p[token.id] / p[rival]) if p.get(token.id) and p.get(rival) else None


def compared(first: Measured, other: Measured, job: Job, temperature: float) -> Lap:
    """The other's lap, compared with the first.

    A decoder that watches the clock may draft differently each time, and then draws other tokens of
    the same law.
    """
    watches_clock = getattr(job.method, "draft_length", None) == "auto" and temperature > 0
    return replace(
        other.lap,
        same_rounds=first.rounds == other.rounds,
        same_tokens=watches_clock or dict(first.outputs) == dict(other.outputs),
    )


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
        return with_lap(result, compared(first, other, job, temperature))
    return replace(result, remarks=[*result.remarks, remark])


def with_lap(result: Result, lap: Lap) -> Result:
    """The result with one lap more; its seconds and its energy are estimated from all of them."""
    all_laps = [*result.laps, lap]
    spent = timing.energy(all_laps)
    metrics: dict[str, Any] = {
        **result.metrics,
        "seconds": timing.whole(all_laps),
        "decode_seconds": timing.after_first(all_laps),
        "joules": spent.joules,
        "energy_source": spent.source,
    }
    if metrics["seconds"] and metrics.get("new_tokens") is not None:
        metrics["tokens_per_second"] = metrics["new_tokens"] / metrics["seconds"]
    return replace(result, laps=all_laps, metrics=metrics, energy=spent)


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
    where = environment(pair, threads) | {"counters_missing": watch.missing()}
    empty = Run(new_id(), date(), study.kind, study.title, study.to_json(), where, [])
    return _Session(study, work, empty, patience).events()


def timed(
    work: Work, job: Job, references: References, *, cold: bool = False, shows: bool = True
) -> Generator[Update, None, Measured]:
    """One timing of a job: here, or on the server that it names; see `measure` of both.

    Args:
        references: the outputs so far, of which a greedy one may be compared with the server's
    """
    if not is_engine(job.method.name):
        return measure(work, job, cold=cold, shows=shows)
    greedy = references.greedy(job.prompt or 0)
    return served.measure(work, job, cold=cold, shows=shows, greedy=greedy)


class _Session:
    def __init__(self, study: Study, work: Work, run: Run, patience: float):
        self.study, self.work, self.run, self.patience = study, work, run, patience
        self.jobs = study.jobs()
        self.references = References(study.settings.temperature, run.environment["dtype"])
        self.first: dict[int, Measured] = {}  # the first lap of each job, by number
        self.over: set[int] = set()  # jobs that are not timed again
        self.warm: set[tuple[Method, int]] = set()  # decoders, and the batch sizes they ran at
        self.laps: dict[int, int] = {}  # by a repeat's first job: its timings with the extension

    def events(self) -> Generator[Event, None, None]:
        with light_heap():
            self.began = time.monotonic()
            self.run = replace(self.run, exact=self._law(exact))
            for number, lap in laps_in_order(self.jobs, self._once_more):
                if self.work.cancelled():
                    break
                if number in self.over:
                    continue
                yield from self._timed(self._at(number, lap), self.jobs[number])
                if self.run.results and self.run.results[-1].cancelled:
                    break
            stopped = len(self.first) < len(self.jobs)
            stopped = stopped or any(r.cancelled for r in self.run.results)
            yield Ended(replace(self.run, cancelled=stopped))

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

    def _once_more(self, numbers: Sequence[int], lap: int) -> bool:
        """Whether these jobs, timed `lap` times, are timed again.

        They are timed as often as the settings say, then some more times, all of them alike, if
        comparing them needs it (`extension`).
        """
        usual = self.study.settings.timings
        if lap < usual or usual == 1 or self.work.cancelled():
            return lap < usual
        if lap == usual:
            results = [
                result
                for number, result in zip(self.first, self.run.results, strict=True)
                if number in numbers and number not in self.over
            ]
            more = extension(results, self.patience)
            self.patience -= more * sum(r.laps[-1].seconds for r in results)
            self.laps[numbers[0]] = usual + more
        return lap < self.laps[numbers[0]]

    def _at(self, number: int, lap: int) -> At:
        job, timings = self.jobs[number], max(lap + 1, self.study.settings.timings)
        where = (job.method.name, job.repeat, job.batch_size, job.scheme, number, len(self.jobs))
        return At(*where, lap, timings, job.prompt)

    def _timed(self, at: At, job: Job) -> Iterator[Event]:
        yield Started(at, self._eta(at), parts_of(self.work, job.prompt or 0))
        if at.lap == 0:
            # Texts that are only read need no warm-up, which would be half of the work of draws:
            # nothing compares their speeds. Where a text is timed again, that is warm anyway; what
            # a server does for a first request is not ours to guess.
            decoder = job.method, job.batch_size
            cold = job.keep not in ("text", "chances") and decoder not in self.warm
            cold = cold and (self.study.settings.timings == 1 or is_engine(job.method.name))
            if cold:
                self.warm.add(decoder)
            measured = yield from self._shown(at, timed(self.work, job, self.references, cold=cold))
            result = measured.result
            shown = job.keep == "trace" or (job.keep == "text" and texts_of([result]))
            if self._is_half(job, result) and not shown:
                return  # half a measurement is useless; half a text with a token is worth showing
            agreement = self.references.compare(job, result, measured.outputs)
            result = replace(result, agreement=result.agreement or agreement)
            self.first[at.job] = measured
            law = [*self.run.exact, *self._law(impossible, replace(self.run, results=[result]))]
            self.run = replace(self.run, results=[*self.run.results, result], exact=law)
            if result.errors or result.cancelled:
                self.over.add(at.job)
        else:
            # These laps exist to be timed without drawing.
            again = timed(self.work, replace(job, keep="lengths"), self.references, shows=False)
            measured = yield from self._shown(at, again)
            if self._is_half(job, measured.result):
                return
            result = self._merged(at, job, measured)
        yield Finished(at, result, self.run)

    def _is_half(self, job: Job, result: Result) -> bool:
        """Whether the result was stopped within a batch, or between two of them."""
        prompts = job.chosen(len(self.work.ids))
        return result.cancelled or (result.error is None and len(result.samples) < len(prompts))

    def _merged(self, at: At, job: Job, measured: Measured) -> Result:
        """The job's result with one lap more, in its place in the run."""
        place = list(self.first).index(at.job)
        result = self.run.results[place]
        if measured.result.errors:
            self.over.add(at.job)
        temperature = self.study.settings.temperature
        result = timed_again(result, self.first[at.job], measured, job, temperature, at.lap + 1)
        return self._replaced(place, result)

    def _replaced(self, place: int, result: Result) -> Result:
        self.run = replace(
            self.run, results=[*self.run.results[:place], result, *self.run.results[place + 1 :]]
        )
        return result

    def _shown(
        self, at: At, measuring: Generator[Update, None, Measured]
    ) -> Generator[Event, None, Measured]:
        """Yield the progress of one timing, and return its measurement."""
        # The last batch is filled up.
        prompts = self.jobs[at.job].chosen(len(self.work.ids))
        requests = -(-len(prompts) // at.batch_size) * at.batch_size
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
        """Seconds until all jobs have run once, of which the one under way is done in part."""
        done, jobs = len(self.first) + part, len(self.jobs)
        if at.lap or done < SOON:
            return None
        return (time.monotonic() - self.began) * max(0.0, jobs - done) / done
