"""A server is asked for one text while a study goes on, and measured from outside.

It is asked by a thread, which notes when each piece arrives; meanwhile the study's own thread
draws, and hears that it is stopped. Connecting and a short first request are not timed.
"""

import logging
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from decoders import InputError, Method, Warping
from decoders.errors import quoted, refuse
from decoders.settings import nearest
from workbench.engines.addresses import LISTED, Engine
from workbench.engines.client import Client, connect, version
from workbench.engines.record import Chunk, Query, Record
from workbench.measuring import served
from workbench.measuring.job import UPDATE_SECONDS, sentence
from workbench.measuring.served import same_model
from workbench.measuring.work import WARM_UP_TOKENS, Measured, Update, Work
from workbench.runs.record import UNTOLD, Result, Sample, Server, TokenRecord
from workbench.studies.settings import SERVED
from workbench.studies.study import Job, Study

Engines = Callable[[], Mapping[str, Engine]]  # gives those that may be asked, by name
LISTEN_SECONDS = 0.05  # how soon Stop is heard while a server is silent
STOP_SECONDS = 0.5  # how long a stopped server may take to send its last piece


@dataclass(frozen=True)
class Answered:
    """What a server gave.

    Attributes:
        server: what it is
        record: its answer
        ours: whether it serves the target here
    """

    server: Server
    record: Record
    ours: bool


def chosen(study: Study, engines: Engines) -> dict[str, Engine]:
    """The engines that a study names.

    Raises:
        InputError: if whoever runs the workbench has named no such engine
    """
    known = engines() if study.settings.engines else {}
    return {each.engine: engine_of(known, each) for each in study.settings.engines}


def texts(study: Study) -> list[str | None]:
    """The prompts as text, None for those that only their ids tell."""
    templated = study.settings.chat_template
    return [
        p.text if isinstance(p.text, str) and not (p.ids or templated) else None
        for p in study.prompts
    ]


def engine_of(engines: Mapping[str, Engine], method: Method) -> Engine:
    """The engine that a study names.

    Raises:
        InputError: if whoever runs the workbench has named no such engine
    """
    name = method.name.removeprefix(SERVED)
    if name not in engines:
        hint = nearest(name, engines) if engines else f"whoever runs the workbench sets {LISTED}."
        raise InputError(f"There is no engine {quoted(name)} here: {hint}")
    return engines[name]


def hidden(words: str, engine: Engine) -> str:
    """Words without the engine's address, which no run may hold."""
    bare = engine.url.split("://", 1)[-1]
    place = bare.split("/", 1)[0]
    for address in (engine.url, bare, place, place.rsplit(":", 1)[0]):
        # Of a model "meta-llama/X", a host called "llama" is no part.
        words = re.sub(rf"(?<![\w.-]){re.escape(address)}(?![\w-])", "[address]", words)
    return words


class Asking:
    """A request in a thread, and what has come of it.

    Args:
        work: the pair, the prompts and the settings
        cold: whether it was not asked before; it is then asked for a few tokens first
    """

    def __init__(self, work: Work, job: Job, engine: Engine, cold: bool):
        self.work, self.job, self.engine, self.cold = work, job, engine, cold
        self.items: SimpleQueue[Any] = SimpleQueue()
        self.pieces: list[tuple[Chunk, float]] = []
        self.served: tuple[Server, bool] | None = None
        self.stopped = False

    def updates(self, shows: bool) -> Generator[Update, None, Answered]:
        """Yield what has come so far, at most ten times a second, and return the answer.

        Raises:
            Exception: whatever the request failed with
        """
        Thread(target=self._run, name="engine", daemon=True).start()
        due, patience = time.monotonic() + UPDATE_SECONDS, STOP_SECONDS
        try:
            while True:
                item = self._next()
                if isinstance(item, Answered):
                    return item
                if isinstance(item, Exception):
                    raise item
                if self.work.cancelled():
                    self.stopped, patience = True, patience - (LISTEN_SECONDS if not item else 0)
                    if patience < 0:
                        return self._cut_off()
                if shows and self.pieces and time.monotonic() >= due:
                    yield self._update()
                    due = time.monotonic() + UPDATE_SECONDS
        finally:
            self.stopped = True

    def _next(self) -> Any:
        """The next thing that the thread tells; None if there is nothing for a while."""
        try:
            item = self.items.get(timeout=LISTEN_SECONDS)
        except Empty:
            return None
        if isinstance(item, tuple):
            self.pieces.append(item)
        return item

    def _run(self) -> None:
        try:
            client = connect(self.engine)
            with closing(client.wire):
                words = version(client), client.model
                kind, pair = client.dialect.kind, self.work.pair
                release, model = (each and hidden(each, self.engine) for each in words)
                server = Server(kind, release, model)
                self.served = server, client.model is not None and same_model(client.model, pair)
                query = query_of(self.work, self.job, client, self.served[1])
                if self.cold:
                    few = min(WARM_UP_TOKENS, query.max_tokens)
                    client.ask(replace(query, max_tokens=few), heard=self._check)
                record = client.ask(query, heard=self._heard)
            self.items.put(Answered(server, record, self.served[1]))
        except Exception as failure:
            self.items.put(failure)

    def _check(self, *_: Any) -> None:
        if self.stopped:
            raise InputError("Stopped.")

    def _heard(self, chunk: Chunk, at: float) -> None:
        self.items.put((chunk, at))
        self._check()

    def _cut_off(self) -> Answered:
        """What came before the study was stopped, of a server that has been silent since."""
        if self.served is None or not self.pieces:
            raise InputError("Stopped.")
        server, ours = self.served
        chunks, times = zip(*self.pieces, strict=True)
        record = Record(
            self.engine.name, server.kind, server.model, "".join(c.text for c in chunks),
            None, None, tuple((at, None) for at in times), times[-1], None, note="Stopped.",
        )  # fmt: skip
        return Answered(server, record, ours)

    def _update(self) -> Update:
        """The pieces so far, each as one token: their fates are told at the end, if at all."""
        tokens = [
            TokenRecord(0, i, c.text, UNTOLD, i, None, None, None, None, None, [])
            for i, (c, _) in enumerate(self.pieces)
        ]
        done = sum(len(c.ids or (0,)) for c, _ in self.pieces)
        return Update(done, tokens, [], False, self.pieces[-1][1])


def query_of(work: Work, job: Job, client: Client, ours: bool) -> Query:
    """What a client asks for: the same prompt, by its ids if they mean the same, and sampling.

    Raises:
        InputError: if it cannot be said to this server
    """
    (number,), settings = job.chosen(len(work.ids)), work.settings
    prompt: Any = tuple(work.ids[number])
    if not (ours and client.dialect.takes_ids):
        prompt = work.texts[number]
    refuse(
        (
            prompt is None,
            f"Engine {client.wire.engine.name} takes the prompt as text only, so it continues no "
            "branch and no chat template; leave it out.",
        ),
        (
            settings.penalties,
            f"Engine {client.wire.engine.name} cannot be asked for `penalties`; switch them off.",
        ),
    )
    return Query(
        prompt, settings.max_new_tokens, seed=job.seed + number, **asdict(Warping.of(settings))
    )


log = logging.getLogger(__name__)


def measure(
    work: Work,
    job: Job,
    *,
    cold: bool = False,
    shows: bool = True,
    greedy: Sequence[int] | None = None,
) -> Generator[Update, None, Measured]:
    """Ask for the job's only text once, on the clock.

    A failure becomes the result's error, with what came before it, and ends only this job.

    Args:
        work: the pair, the prompts and the engines
        job: the job, whose method is an engine
        cold: whether the engine was not asked before; it is then asked for a few tokens first
        shows: whether to yield updates on the way
        greedy: the tokens of greedy decoding here, if it ran
    """
    (number,) = job.chosen(len(work.ids))
    prompt, engine = work.ids[number], engine_of(work.engines, job.method)
    try:
        answered = yield from Asking(work, job, engine, cold).updates(shows)
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
    result = served.result(job, record, sample, answered.server, remarks(answered))
    if shows and answered.ours and not sample.error and not work.settings.temperature:
        result = served.given(work, result, record, greedy, engine.dtype)
    return Measured(result, {number: sample.ids}, [(sample.gained, sample.drafted)])


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
