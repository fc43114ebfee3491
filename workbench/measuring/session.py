"""One comparison: decoders run one after another on one prompt, each timed alone, reported as it happens."""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

import torch

import decoders
from decoders import InputError, Method, ModelPair
from workbench.measuring.baseline import against_greedy
from workbench.measuring.detokenise import Pieces
from workbench.measuring.gauges import Energy
from workbench.measuring.meter import Meter, Window, open_meter
from workbench.measuring.transcript import Transcript, finite
from workbench.models.environment import environment
from workbench.runs.record import RoundRecord, RunResult, TokenRecord
from workbench.runs.store import Run
from workbench.studies.settings import Settings

UPDATE_SECONDS = 0.1  # between two updates at least: per-token updates of five panels more than doubled the wall time
DRAWING_SHARE = 0.2  # of the waiting time at most is spent drawing; a slow screen gets fewer updates
WARM_UP_TOKENS = 8
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Started:
    """A decoder begins. `job` of `jobs` (from 0) counts decoders times repeats."""

    decoder: str
    repeat: int
    job: int
    jobs: int


@dataclass(frozen=True, slots=True)
class Progress:
    """A decoder's output so far, at most ten times a second: `len(tokens)` of `budget`.

    provisional   a later round may take tokens back (beams)
    rounds        so far, for the rejected drafts
    eta_seconds   until the whole comparison is over, None until it can be told
    """

    decoder: str
    repeat: int
    tokens: list[TokenRecord]
    rounds: list[RoundRecord]
    provisional: bool
    budget: int
    eta_seconds: float | None


@dataclass(frozen=True, slots=True)
class Finished:
    """A decoder is done, or failed (`result.error`), or was cancelled (`result.finished`)."""

    result: RunResult


@dataclass(frozen=True, slots=True)
class Ended:
    """The last event. The run holds everything finished, also where it was cancelled."""

    run: Run


SessionEvent = Started | Progress | Finished | Ended


class StopClock:
    """Seconds that do not pass while it is stopped."""

    def __init__(self, now: Callable[[], float] = time.perf_counter):
        self._now, self._away = now, 0.0

    def __call__(self) -> float:
        return self._now() - self._away

    @contextmanager
    def stopped(self) -> Iterator[None]:
        began = self._now()
        try:
            yield
        finally:
            self._away += self._now() - began


def encode_prompt(pair: ModelPair, prompt: str, chat_template: bool = False) -> list[int]:
    """The prompt's token ids as a comparison uses them. Raises InputError where it is empty or there is no chat template to apply."""
    if not prompt:
        raise InputError("The prompt is empty; give at least one character.")
    if not chat_template:
        return list(pair.tokenizer(prompt).input_ids)
    if not getattr(pair.tokenizer, "chat_template", None):
        raise InputError("This pair's tokenizer has no chat template; switch it off, or load a chat model.")
    messages = [{"role": "user", "content": prompt}]
    text = pair.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return list(pair.tokenizer(text, add_special_tokens=False).input_ids)


def compare(
    pair: ModelPair,
    prompt: str,
    settings: Settings,
    *,
    meter: Meter | None = None,
    cancel: threading.Event | Callable[[], bool] | None = None,
) -> Iterator[SessionEvent]:
    """Run the chosen decoders on the prompt; yields events of plain data, an `Ended` with the run last.

    Raises InputError at the call, before any work, for input that cannot be used. A decoder that fails has its error in its result
    and the others go on. `cancel` ends it within one forward pass and still gives the run so far; closing the iterator ends it
    without one. Either way all memory is given back. The clock stands still while the caller holds an event: speeds are those of
    the models and the decoder alone, however slowly the caller draws. Before the first decoder a few tokens are decoded untimed:
    a process's first passes set up what later ones find ready.
    """
    ids = encode_prompt(pair, prompt, settings.chat_template)
    for method in settings.methods:
        decoders.stream(pair, ids, method, **settings.decoding)  # checks the input; nothing runs before it is read from
    cancelled = getattr(cancel, "is_set", cancel) or (lambda: False)
    return _Session(pair, prompt, ids, settings, meter or open_meter(pair.target.device), cancelled).run()


@dataclass(frozen=True)
class _Session:
    pair: ModelPair
    prompt: str
    ids: list[int]
    settings: Settings
    meter: Meter
    cancelled: Callable[[], bool]

    def run(self) -> Iterator[SessionEvent]:
        created, where = datetime.now(UTC).isoformat(timespec="seconds"), environment(self.pair)
        methods = sorted(self.settings.methods, key=lambda m: m.name != "greedy")  # the others are held against it
        jobs = [(repeat, method) for repeat in range(self.settings.repeats) for method in methods]
        results: list[RunResult] = []
        began = time.monotonic()

        def eta(part: float) -> float | None:
            done = (len(results) + part) / len(jobs)
            return (time.monotonic() - began) * (1 - done) / done if done else None

        for repeat, method in jobs:
            if self.cancelled():
                break
            yield Started(method.name, repeat, len(results), len(jobs))
            result = yield from self._decode(method, repeat, eta)
            base = next((r for r in (*results, result) if r.decoder == "greedy" and r.repeat == repeat), None)
            results.append(against_greedy(result, base, method, self.settings.temperature, where["dtype"]))
            yield Finished(results[-1])
        cancelled = len(results) < len(jobs) or any(r.finished == "cancelled" for r in results)
        id = secrets.token_hex(6)
        yield Ended(Run(id, created, self.prompt, self.settings.to_json(), where, results, cancelled))

    def _decode(
        self, method: Method, repeat: int, eta: Callable[[float], float | None]
    ) -> Generator[Progress, None, RunResult]:
        options = {**self.settings.decoding, "seed": self.settings.seed + repeat, "cancel": self.cancelled}
        budget = self.settings.max_new_tokens
        clock = StopClock()
        transcript = Transcript(Pieces(self.pair.tokenizer), len(self.ids) - 1)
        final, error, window = None, None, Window()
        due = time.monotonic() + UPDATE_SECONDS
        try:
            if repeat == 0:
                self._warm_up(method, options)
            with (
                self.meter.window() as window,
                closing(decoders.stream(self.pair, self.ids, method, **options, clock=clock)) as stream,
            ):
                for event in stream:
                    with clock.stopped():
                        final = event.result
                        if event.round is None:
                            continue
                        transcript.add(event.round)
                        if time.monotonic() >= due:
                            drawing = time.monotonic()
                            yield Progress(
                                method.name,
                                repeat,
                                list(transcript.tokens),
                                list(transcript.rounds),
                                event.provisional,
                                budget,
                                eta(len(transcript.tokens) / budget),
                            )
                            drawn = time.monotonic() - drawing
                            due = time.monotonic() + max(UPDATE_SECONDS, drawn * (1 / DRAWING_SHARE - 1))
            error = str(final.error) if final.error else None
        except torch.OutOfMemoryError:
            error = "The device ran out of memory; take fewer beams, fewer tokens, a shorter prompt or a smaller pair."
        except Exception as failure:
            log.exception("%s failed", method.name)
            error = f"{type(failure).__name__}: {str(failure).strip().partition(chr(10))[0]}"
        text = final.text if final else ""
        transcript.finish(text)
        return RunResult(
            method.name,
            repeat,
            options["seed"],
            len(self.ids),
            text,
            transcript.tokens,
            transcript.rounds,
            _metrics(final.metrics if final else None, window.energy),
            window.energy,
            final.finished if final else None,
            error,
        )

    def _warm_up(self, method: Method, options: dict[str, Any]) -> None:
        few = min(WARM_UP_TOKENS, self.settings.max_new_tokens)
        decoders.generate(self.pair, self.ids[-WARM_UP_TOKENS:], method, **{**options, "max_new_tokens": few})


def _metrics(metrics: decoders.Metrics | None, energy: Energy) -> dict[str, int | float | str | None]:
    """By the library's names; all None where a decoder broke down before there were any."""
    if metrics is None:
        return {f.name: None for f in fields(decoders.Metrics)}
    metrics = replace(metrics, joules=energy.joules, energy_source=energy.source)
    return {name: finite(value) if isinstance(value, float) else value for name, value in asdict(metrics).items()}
