"""Another engine's server is asked for one text, measured from outside, and its answer is a result.

It is asked by a thread, which notes when each piece arrives; meanwhile the study's own thread
draws, and hears that it is stopped. Connecting and a short first request are not timed.

Nothing is filled in that the server did not tell: a figure that is not known is None. What the
models here can tell of its text, they do: log-probabilities, and so perplexity, are those of the
target here, which reads the text afterwards. Its greedy text gets a verdict.
"""

import logging
import math
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import torch

import decoders
from decoders import Divergence, Fate, InputError, Method, Metrics, ModelPair, Warping, read
from decoders.distribution import top
from decoders.errors import quoted, refuse
from decoders.inputs import decoded
from decoders.settings import nearest
from workbench.engines.addresses import LISTED, Engine
from workbench.engines.client import Client, connect, version
from workbench.engines.record import Chunk, Query, Record, Speculation
from workbench.measuring.job import OF_BATCHES, UPDATE_SECONDS, sentence
from workbench.measuring.transcript import Pieces, Place, finite
from workbench.measuring.work import WARM_UP_TOKENS, Measured, Update, Work
from workbench.runs.record import (
    UNTOLD,
    Agreement,
    Alternative,
    Energy,
    Lap,
    Result,
    Sample,
    Server,
    TokenRecord,
)
from workbench.studies.settings import SERVED
from workbench.studies.study import BASELINE, Job, Study


def rebuilt(count: int, speculation: Speculation | None) -> list[str] | None:
    """The fate of each token, from the counts of each step.

    The prompt's pass gives one token. Each verification gives the draft tokens that it accepted,
    and one of the target: a correction if a draft token was refused, else a bonus.

    Args:
        count: number of tokens; the text may end within the last step

    Returns:
        None if steps are not told, or do not explain this many tokens
    """
    if speculation is None or not speculation.per_step:
        return None
    fates: list[str] = [Fate.SAMPLED]
    last = 1
    for drafted, accepted in speculation.per_step:
        own = Fate.BONUS if accepted == drafted else Fate.CORRECTED
        fates += [Fate.ACCEPTED] * accepted + [own if drafted else Fate.SAMPLED]
        last = accepted + 1
    return fates[:count] if len(fates) - last < count <= len(fates) else None


def arrived(record: Record, ids: Sequence[int] | None) -> list[int]:
    """For each token the number of the piece that brought it; [] if that is not known."""
    counts = [count for _, count in record.arrivals]
    if ids is None or None in counts:
        return []
    ends = list(accumulate(count or 0 for count in counts))
    pieces = [bisect_right(ends, place) for place in range(len(ids))]
    # The token that ended the text may come without a piece.
    return [min(piece, max(len(ends) - 1, 0)) for piece in pieces]


NO_ENERGY = Energy(None, "not measured: an engine is seen from outside")
ENDS = {"length": "budget", "stop": "end of sequence"}
LIKELIEST = 5  # tokens listed at each place, as by decoders

Ids = Sequence[int]


def sample(record: Record, number: int, prompt: Ids, pair: ModelPair, ours: bool = True) -> Sample:
    """The text of an answer with its tokens, their fates and the target's view of each.

    Args:
        number: index of the prompt
        prompt: its token ids here
        ours: whether the server serves the target, so that ids mean the same
    """
    ids = ids_of(record, pair) if ours else None
    steps = record.speculation
    fates = rebuilt(len(ids), steps) if ids else None
    shown = list(ids) if ids is not None else split(record.text, pair)
    per_step = steps.per_step if steps and fates else ()
    return Sample(
        number,
        len(prompt),
        text=record.text,
        tokens=_tokens(shown, fates or [UNTOLD] * len(shown), arrived(record, ids), prompt, pair),
        gained=[1, *(accepted + 1 for _, accepted in per_step)] if per_step else [],
        drafted=[0, *(drafted for drafted, _ in per_step)] if per_step else [],
        ids=shown,
        prompt_ids=list(prompt),
        arrivals=[at for at, _ in record.arrivals],
        finished=ENDS.get(record.finished or "", record.finished or "cut off"),
        error=record.note or None,
    )


def ids_of(record: Record, pair: ModelPair) -> list[int] | None:
    """The ids of an answer, with the token that ended it if there is only one that can.

    Returns:
        None if they are not told, or cannot be the target's
    """
    if record.tokens is None or max(record.tokens, default=0) >= pair.vocabulary:
        return None
    ends = sorted(pair.end_tokens)
    ended = record.finished == "stop" and (not record.tokens or record.tokens[-1] not in ends)
    return [*record.tokens, *(ends if ended and len(ends) == 1 else ())]


def split(text: str, pair: ModelPair) -> list[int]:
    """A text in tokens of the pair here, for an answer without ids of its own."""
    return list(pair.tokenizer(text, add_special_tokens=False).input_ids) if text else []


def result(
    job: Job, record: Record, sample: Sample, server: Server, remarks: Sequence[str] = ()
) -> Result:
    """The result of a request that a server answered.

    Args:
        job: what was asked: the engine as its `method`, repeat and seed
        remarks: sentences that a reader of the figures must know
    """
    # Pieces that a network delays would come the quicker afterwards, so it is the whole that is
    # compared, not its parts.
    lap = Lap(record.seconds, [], NO_ENERGY, _after(record), drawn=False)
    return Result(
        job.method.name, job.repeat, job.seed, metrics(record, sample), NO_ENERGY, [sample], [lap],
        job.batch_size, job.scheme, error=sample.error, remarks=list(remarks), server=server,
    )  # fmt: skip


def metrics(record: Record, sample: Sample) -> dict[str, Any]:
    """The figures of a request by the names of a job's metrics, None for those not told.

    Passes of the target are that over the prompt and the verifications, if these are counted. A
    chain's rule tests the accepted tokens of a step and the first refused one.
    """
    new = len(sample.tokens) if record.count is None else record.count
    figures = untold() | {
        "new_tokens": new,
        "seconds": record.seconds,
        "tokens_per_second": _ratio(new, record.seconds),
        "energy_source": NO_ENERGY.source,
        "decode_seconds": _after(record),
    }
    scored = [t.log_p for t in sample.tokens if t.log_p is not None]
    if scored and len(scored) == len(sample.tokens):
        figures["perplexity"] = finite(math.exp(min(700.0, -math.fsum(scored) / len(scored))))
    if (spoken := record.speculation) is not None:
        calls = None if spoken.steps is None else 1 + spoken.steps
        tested = sum(a + (a < d) for d, a in spoken.per_step) if spoken.per_step else None
        figures |= {
            "drafted": spoken.drafted,
            "accepted": spoken.accepted,
            "acceptance_rate": _ratio(spoken.accepted, spoken.drafted),
            "tested": tested,
            "alpha": _ratio(spoken.accepted, tested),
            "target_calls": calls,
            "block_efficiency": _ratio(new, calls),
        }
    return figures


def untold() -> dict[str, Any]:
    """The figures of a job of which nothing is known."""
    return dict.fromkeys([*(f.name for f in fields(Metrics)), *OF_BATCHES])


def _after(record: Record) -> float | None:
    """Seconds after the first token.

    A busy machine hears several pieces at once, so the speed after the first is not known.
    """
    return None if record.first is None else record.seconds - record.first


def _tokens(
    ids: Ids, fates: Sequence[str], pieces: Sequence[int], prompt: Ids, pair: ModelPair
) -> list[TokenRecord]:
    write, place, records = Pieces(pair.tokenizer), Place(), []
    chances = _chances(ids, prompt, pair)
    for i, (token, fate) in enumerate(zip(ids, fates, strict=True)):
        likely = (
            [Alternative(other, write.label(place, other), p) for other, p in chances[i][1]]
            if chances
            else []
        )
        text, place = write.extend(place, token)
        records.append(
            TokenRecord(
                token, len(prompt) + i, text, str(fate), pieces[i] if pieces else None,
                None, None, None, None, chances[i][0] if chances else None, likely,
            )
        )  # fmt: skip
    return records


def _chances(
    ids: Ids, prompt: Ids, pair: ModelPair
) -> list[tuple[float | None, list[tuple[int, float]]]]:
    """For each token its log-probability and the likeliest ones there, under the raw target.

    Returns:
        [] if the text is too long for the target here
    """
    if not ids:
        return []
    try:
        places = read(pair, list(prompt), list(ids), draft=False)
    except InputError:
        return []
    log_p = places.log_p[:-1]
    rows = torch.tensor(list(ids), device=log_p.device)[:, None]
    own = log_p.gather(-1, rows)[:, 0].tolist()
    values, tokens = top(log_p, LIKELIEST)
    likely = [
        list(zip(row, chances, strict=True))[:LIKELIEST]
        for row, chances in zip(tokens.tolist(), values.exp().tolist(), strict=True)
    ]
    return [(finite(each), some) for each, some in zip(own, likely, strict=True)]


def _ratio(part: float, whole: float | None) -> float | None:
    return part / whole if whole else None


# What a name may end in besides the model's: the format of a file, the number type of its weights.
ENDINGS = re.compile(r"(\.gguf|\.safetensors)?$"), re.compile(r"[-_.](f16|fp16|bf16|f32|fp32)$")
# The number type that explains most, and that most servers compute in.
COARSE = "bfloat16"
NO_DTYPE = (
    f" The server does not tell its number type, so {COARSE} is taken; whoever runs the workbench "
    "may name it as `dtype`."
)


def same_model(name: str, pair: ModelPair) -> bool:
    """Whether a model's name in a server's words is the target's: "Qwen3-8B" is Qwen/Qwen3-8B.

    The folders of a pair are called target and draft, so the folder around them names the target.
    """
    theirs, ours = map(_parts, (name, str(pair.target.config.name_or_path)))
    shared = min(len(theirs), len(ours))
    return shared > 0 and theirs[-shared:] == ours[-shared:]


def _parts(name: str) -> list[str]:
    for ending in ENDINGS:
        name = ending.sub("", name.casefold())
    parts = [part for part in re.split(r"[/\\]", name) if part not in ("", ".")]
    return parts[:-1] if len(parts) > 1 and parts[-1] == "target" else parts


def given(
    work: Work,
    result: Result,
    record: Record,
    greedy: Sequence[int] | None,
    dtype: str | None,
) -> Result:
    """The result with the judge's verdict on its greedy text, beside greedy decoding here.

    Args:
        work: the pair, the prompts and the settings
        greedy: the tokens of greedy decoding here; None decodes them now
        dtype: the number type that the server computes in; None if that is not known
    """
    sample = result.alone
    prompt = work.ids[sample.prompt]
    try:
        if greedy is None:
            most = work.settings.max_new_tokens
            alone = decoders.generate(work.pair, prompt, BASELINE, max_new_tokens=most)
            greedy = alone.tokens
        text, used = work.texts[sample.prompt], dtype or COARSE
        divergence = _judged(work, prompt, text, greedy, record, used)
    except InputError as error:
        return replace(result, remarks=[*result.remarks, f"Its text gets no verdict: {error}"])
    differs = divergence.verdict != "same"
    gap, unsaid = abs(divergence.gap_float64), NO_DTYPE if differs and dtype is None else ""
    return replace(
        result,
        agreement=Agreement(
            BASELINE, 1, int(differs), divergence.place if differs else None,
            gap if differs and math.isfinite(gap) else None,
            divergence.bound / 2 if differs else None, divergence.verdict == "near-tie", used,
            divergence.verdict, divergence.says + unsaid,
        ),
    )  # fmt: skip


def _judged(
    work: Work, prompt: list[int], text: str | None, greedy: Sequence[int], record: Record,
    dtype: str,
) -> Divergence:  # fmt: skip
    pair, theirs = work.pair, ids_of(record, work.pair)
    if theirs is not None:
        return decoders.compare_greedy(pair, prompt, list(greedy), theirs, dtype=dtype)
    ours = decoded(pair.tokenizer, list(greedy))
    return decoders.compare_greedy(pair, text or prompt, ours, record.text, dtype=dtype)


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
    return Query(prompt, settings.max_new_tokens, Warping.of(settings), job.seed + number)


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
        words = str(failure)
        if not isinstance(failure, InputError):
            log.exception("%s failed", job.method.name)
            words = sentence(failure)
        return Measured(_failed(work, job, prompt, hidden(words, engine)), {}, [])
    record, pair = answered.record, work.pair
    text = sample(record, number, prompt, pair, answered.ours)
    if record.note and work.cancelled():
        text = replace(text, finished="cancelled", error=None)
    elif record.note:
        text = replace(text, error=hidden(record.note, engine))
    whole = result(job, record, text, answered.server, remarks(answered))
    if shows and answered.ours and not text.error and not work.settings.temperature:
        whole = given(work, whole, record, greedy, engine.dtype)
    return Measured(whole, {number: text.ids}, [(text.gained, text.drafted)])


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


def _failed(work: Work, job: Job, prompt: Sequence[int], words: str) -> Result:
    """The result of an engine that gave no text."""
    (number,), stopped = job.chosen(len(work.ids)), work.cancelled()
    sample = Sample(number, len(prompt), finished="cancelled" if stopped else None)
    return Result(
        job.method.name, job.repeat, job.seed, untold(), NO_ENERGY, [sample],
        error=None if stopped else words,
    )  # fmt: skip
