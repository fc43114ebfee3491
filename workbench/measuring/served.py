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
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import replace
from itertools import accumulate
from threading import Thread
from typing import Any

import torch

import decoders
from decoders import InputError, ModelPair, Warping, read
from decoders.distribution import top
from decoders.errors import quoted, refuse
from decoders.inputs import decoded
from decoders.settings import nearest
from decoders.trace import perplexity
from workbench.engines.addresses import LISTED, Engine
from workbench.engines.client import Client, Record, connect
from workbench.engines.dialects import Chunk, Query
from workbench.measuring.job import UPDATE_SECONDS, sentence, untold
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

NO_ENERGY = Energy(None, "not measured: an engine is seen from outside")
LIKELIEST = 5  # tokens listed at each place, as by decoders
ENDS = {"length": "budget", "stop": "end of sequence"}

Ids = Sequence[int]


def sample(record: Record, number: int, prompt: Ids, pair: ModelPair, ours: bool = True) -> Sample:
    """The text of an answer with its tokens and the target's view of each.

    Args:
        number: index of the prompt
        prompt: its token ids here
        ours: whether the server serves the target, so that ids mean the same
    """
    ids = ids_of(record, pair) if ours else None
    shown = ids
    if shown is None:  # the text is split into tokens here
        shown = pair.tokenizer(record.text, add_special_tokens=False).input_ids
    return Sample(
        number,
        len(prompt),
        text=record.text,
        tokens=_tokens(shown, arrived(record, ids), prompt, pair),
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


def arrived(record: Record, ids: Ids | None) -> list[int]:
    """For each token the number of the piece that brought it; [] if that is not known."""
    counts = [count for _, count in record.arrivals]
    if ids is None or None in counts:
        return []
    ends = list(accumulate(count or 0 for count in counts))
    pieces = [bisect_right(ends, place) for place in range(len(ids))]
    # The token that ended the text may come without a piece.
    return [min(piece, max(len(ends) - 1, 0)) for piece in pieces]


def _tokens(ids: Ids, pieces: Sequence[int], prompt: Ids, pair: ModelPair) -> list[TokenRecord]:
    write, place, records = Pieces(pair.tokenizer), Place(), []
    for i, (token, (log_p, likely)) in enumerate(
        zip(ids, _chances(ids, prompt, pair), strict=True)
    ):
        others = [Alternative(other, write.label(place, other), p) for other, p in likely]
        text, place = write.extend(place, token)
        records.append(
            TokenRecord(
                token, len(prompt) + i, text, UNTOLD, pieces[i] if pieces else None,
                None, None, None, None, log_p, others,
            )
        )  # fmt: skip
    return records


def _chances(
    ids: Ids, prompt: Ids, pair: ModelPair
) -> list[tuple[float | None, list[tuple[int, float]]]]:
    """For each token its log-probability and the likeliest ones there, under the raw target.

    If the text is too long for the target here, they are not known.
    """
    try:
        log_p = read(pair, list(prompt), list(ids), draft=False).log_p[: len(ids)]
    except InputError:
        return [(None, [])] * len(ids)
    rows = torch.tensor(list(ids), dtype=torch.int64, device=log_p.device)[:, None]
    own = log_p.gather(-1, rows)[:, 0].tolist()
    values, tokens = top(log_p, LIKELIEST)
    likely = map(zip, tokens.tolist(), values.exp().tolist())
    return [(finite(each), list(some)) for each, some in zip(own, likely, strict=True)]


def metrics(record: Record, sample: Sample) -> dict[str, Any]:
    """The figures of a request by the names of a job's metrics, None for those not told."""
    new = len(sample.tokens) if record.count is None else record.count
    scored = [t.log_p for t in sample.tokens if t.log_p is not None]
    return untold() | {
        "new_tokens": new,
        "seconds": record.seconds,
        "tokens_per_second": new / record.seconds if record.seconds else None,
        "energy_source": NO_ENERGY.source,
        "decode_seconds": record.after_first,
        "perplexity": finite(perplexity(scored)) if len(scored) == len(sample.tokens) else None,
    }


# What a name may end in besides the model's: the format of a file, the number type of its weights.
ENDINGS = re.compile(r"(\.gguf|\.safetensors)?$"), re.compile(r"[-_.](f16|fp16|bf16|f32|fp32)$")
# The number type that explains most, and that most servers compute in.
COARSE = "bfloat16"


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
    number, used = result.alone.prompt, dtype or COARSE
    prompt: Any = work.ids[number]
    theirs: Any = ids_of(record, work.pair)
    try:
        if greedy is None:
            most = work.settings.max_new_tokens
            greedy = decoders.generate(work.pair, prompt, BASELINE, max_new_tokens=most).tokens
        ours: Any = list(greedy)
        if theirs is None:
            ours, theirs = decoded(work.pair.tokenizer, ours), record.text
            prompt = work.texts[number] or prompt
        divergence = decoders.compare_greedy(work.pair, prompt, ours, theirs, dtype=used)
    except InputError as error:
        return replace(result, remarks=[*result.remarks, f"Its text gets no verdict: {error}"])
    differs = divergence.verdict != "same"
    gap = abs(divergence.gap_float64)
    return replace(
        result,
        agreement=Agreement(
            BASELINE, 1, int(differs), divergence.place if differs else None,
            gap if differs and math.isfinite(gap) else None,
            divergence.bound / 2 if differs else None, divergence.verdict == "near-tie", used,
            divergence.verdict, divergence.says,
        ),
    )  # fmt: skip


Engines = Callable[[], Mapping[str, Engine]]  # gives those that may be asked, by name


def chosen(study: Study, engines: Engines) -> Mapping[str, Engine]:
    """The engines that may be asked, of a study that asks any.

    Raises:
        InputError: if whoever runs the workbench has not named one that the study names
    """
    known = engines() if study.settings.engines else {}
    for each in study.settings.engines:
        if (name := each.engine) not in known:
            hint = nearest(name, known) if known else f"whoever runs the workbench sets {LISTED}."
            raise InputError(f"There is no engine {quoted(name)} here: {hint}")
    return known


def texts(study: Study) -> list[str | None]:
    """The prompts as text, None for those that only their ids tell."""
    templated = study.settings.chat_template
    return [
        p.text if isinstance(p.text, str) and not (p.ids or templated) else None
        for p in study.prompts
    ]


def hidden(words: str, engine: Engine) -> str:
    """Words without the engine's address, which no run may hold."""
    bare = engine.url.split("://", 1)[-1]
    place = bare.split("/", 1)[0]
    for address in (engine.url, bare, place, place.rsplit(":", 1)[0]):
        # Of a model "meta-llama/X", a host called "llama" is no part.
        words = re.sub(rf"(?<![\w.-]){re.escape(address)}(?![\w-])", "[address]", words)
    return words


LISTEN_SECONDS = 0.05  # how soon Stop is heard while a server is silent


class Asking:
    """A request in a thread, and what has come of it.

    Args:
        work: the pair, the prompts and the settings
        cold: whether it was not asked before; it is then asked for a few tokens first

    Attributes:
        server: what it is
        ours: whether it serves the target here
    """

    def __init__(self, work: Work, job: Job, engine: Engine, cold: bool):
        self.work, self.job, self.engine, self.cold = work, job, engine, cold
        self.pieces: list[tuple[Chunk, float]] = []
        self.whole: Future[Record] = Future()
        self.stopped = False

    def updates(self, shows: bool) -> Generator[Update, None, Record]:
        """Yield what has come so far, now and then, and return the answer.

        Raises:
            Exception: whatever the request failed with
        """
        Thread(target=self._run, name="engine", daemon=True).start()
        due = time.monotonic() + UPDATE_SECONDS
        try:
            while not wait([self.whole], LISTEN_SECONDS).done:
                pieces = list(self.pieces)
                if self.work.cancelled():
                    refuse((not pieces, "Stopped."))
                    return self.client.record(pieces, pieces[-1][1], "Stopped.")
                if shows and pieces and time.monotonic() >= due:
                    # Each piece as one token.
                    tokens = [
                        TokenRecord(0, i, c.text, UNTOLD, i, None, None, None, None, None, [])
                        for i, (c, _) in enumerate(pieces)
                    ]
                    count = sum(len(c.ids or (0,)) for c, _ in pieces)
                    yield Update(count, tokens, [], False, pieces[-1][1])
                    due = time.monotonic() + UPDATE_SECONDS
            return self.whole.result()
        finally:
            self.stopped = True

    def _run(self) -> None:
        try:
            client = self.client = connect(self.engine)
            with closing(client.wire):
                model, name = client.shown_model, client.model
                shown = None if model is None else hidden(model, self.engine)
                self.server = Server(client.dialect.kind, client.version, shown)
                self.ours = name is not None and same_model(name, self.work.pair)
                query = query_of(self.work, self.job, client, self.ours)
                if self.cold:
                    few = min(WARM_UP_TOKENS, query.max_tokens)
                    client.ask(replace(query, max_tokens=few))
                self.whole.set_result(client.ask(query, heard=self._heard))
        except Exception as failure:
            self.whole.set_exception(failure)

    def _heard(self, chunk: Chunk, at: float) -> None:
        self.pieces.append((chunk, at))
        refuse((self.stopped, "Stopped."))


def query_of(work: Work, job: Job, client: Client, ours: bool) -> Query:
    """What a client asks for: the same prompt, by its ids if they mean the same, and sampling.

    Raises:
        InputError: if it cannot be said to this server
    """
    settings = work.settings
    prompt: Any = tuple(work.ids[0])
    if not (ours and client.dialect.takes_ids):
        prompt = work.texts[0]
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
    return Query(prompt, settings.max_new_tokens, Warping.of(settings), job.seed)


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
    prompt, engine = work.ids[0], work.engines[job.method.name.removeprefix(SERVED)]
    asking = Asking(work, job, engine, cold)
    whole = Result(
        job.method.name, job.repeat, job.seed, untold(), NO_ENERGY, [Sample(0, len(prompt))],
        [], job.batch_size, job.scheme,
    )  # fmt: skip
    try:
        record = yield from asking.updates(shows)
    except Exception as failure:
        words = str(failure)
        if not isinstance(failure, InputError):
            log.exception("%s failed", job.method.name)
            words = sentence(failure)
        if work.cancelled():
            stopped = replace(whole.alone, finished="cancelled")
            return Measured(replace(whole, samples=[stopped]), {}, [])
        return Measured(replace(whole, error=hidden(words, engine)), {}, [])
    text = sample(record, 0, prompt, work.pair, asking.ours)
    if record.note and work.cancelled():
        text = replace(text, finished="cancelled", error=None)
    elif record.note:
        text = replace(text, error=hidden(record.note, engine))
    whole = replace(
        whole,
        metrics=metrics(record, text),
        samples=[text],
        # Pieces that a network delays would come the quicker afterwards, so it is the whole that is
        # compared, not its parts.
        laps=[Lap(record.seconds, [], NO_ENERGY, record.after_first, drawn=False)],
        error=text.error,
        remarks=remarks(record, asking.server.model, asking.ours),
        server=asking.server,
    )
    if shows and asking.ours and not record.note and not work.settings.temperature:
        whole = given(work, whole, record, greedy, engine.dtype)
    return Measured(whole, {0: text.ids}, [])


def remarks(record: Record, model: str | None, ours: bool) -> list[str]:
    """What a reader of an engine's figures and text must know, in sentences."""
    if not ours:
        serves = (
            "It does not say which model it serves"
            if model is None
            else f"It serves {quoted(model)}, by its name another model than the target here"
        )
        return [f"{serves}, so its text gets no verdict."]
    untold = "It tells no token ids: its text is split into tokens here."
    return [untold] if record.tokens is None else []
