"""One job on the clock, from outside if it is an engine's."""

import logging
from collections.abc import Generator, Sequence
from dataclasses import replace

from decoders import InputError
from decoders.errors import quoted
from workbench.engines.addresses import Engine
from workbench.measuring import served, verdict
from workbench.measuring.asking import Answered, Asking, engine_of, hidden
from workbench.measuring.cycles import References
from workbench.measuring.job import measure as here
from workbench.measuring.job import sentence
from workbench.measuring.work import Measured, Update, Work
from workbench.runs.record import Result, Sample
from workbench.studies.settings import is_engine
from workbench.studies.study import Job

log = logging.getLogger(__name__)


def timed(
    work: Work, job: Job, references: References, *, cold: bool = False, drawn: bool = True
) -> Generator[Update, None, Measured]:
    """One timing of a job: here, or on the server that it names.

    Args:
        work: the instruments
        job: the job
        references: the outputs so far, of which a greedy one may be compared with the server's
        cold: see `measure`
        drawn: likewise
    """
    if not is_engine(job.method.name):
        return here(work, job, cold=cold, drawn=drawn)
    greedy = references.greedy(job.prompt or 0)
    return measure(work, job, cold=cold, drawn=drawn, greedy=greedy)


def measure(
    work: Work,
    job: Job,
    *,
    cold: bool = False,
    drawn: bool = True,
    greedy: Sequence[int] | None = None,
) -> Generator[Update, None, Measured]:
    """Ask for the job's only text once, on the clock.

    A failure becomes the result's error, with what came before it, and ends only this job.

    Args:
        work: the pair, the prompts and the engines
        job: the job, whose method is an engine
        cold: whether the engine was not asked before; it is then asked for a few tokens first
        drawn: whether to yield updates on the way
        greedy: the tokens of greedy decoding here, if it ran
    """
    (number,) = job.chosen(len(work.ids))
    prompt, engine = work.ids[number], engine_of(work.engines, job.method)
    try:
        answered = yield from Asking(work, job, engine, cold).updates(drawn)
    except Exception as failure:
        if not isinstance(failure, InputError):
            log.exception("%s failed", job.method.name)
        return Measured(_failed(work, job, prompt, _words(failure, engine)), {}, [])
    record, pair = answered.record, work.pair
    sample = served.sample(record, number, prompt, pair, answered.ours)
    if record.note and work.cancelled():
        sample = replace(sample, finished="cancelled", error=None)
    elif record.note:
        sample = replace(sample, error=hidden(record.note, engine))
    found = served.result(job, record, sample, answered.server, remarks(answered))
    if drawn and answered.ours and not sample.error and not work.settings.temperature:
        found = verdict.given(work, found, record, greedy, engine.dtype)
    return Measured(found, {number: sample.ids}, [(sample.gained, sample.drafted)])


def remarks(answered: Answered) -> list[str]:
    """What a reader of an engine's figures and text must know, in sentences."""
    record, model = answered.record, answered.server.model
    if model is None:
        return ["It does not say which model it serves, so its text gets no verdict."]
    if not answered.ours:
        return [
            f"It serves {quoted(model)}, by its name another model than the target here, so its "
            "text gets no verdict."
        ]
    if record.tokens is None:
        counted = "" if record.count else ", where its tokens are counted, too"
        return [f"It tells no token ids: its text is split into tokens here{counted}."]
    return []


def _words(failure: Exception, engine: Engine) -> str:
    return hidden(str(failure) if isinstance(failure, InputError) else sentence(failure), engine)


def _failed(work: Work, job: Job, prompt: Sequence[int], words: str) -> Result:
    """The result of an engine that gave no text."""
    (number,), stopped = job.chosen(len(work.ids)), work.cancelled()
    sample = Sample(number, len(prompt), finished="cancelled" if stopped else None)
    return Result(
        job.method.name, job.repeat, job.seed, served.untold(), served.NO_ENERGY, [sample],
        error=None if stopped else words,
    )  # fmt: skip
