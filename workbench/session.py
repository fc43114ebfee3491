"""One comparison: decoders run one after another on one prompt, each timed alone, reported as it happens."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from decoders import ModelPair
from workbench.meter import Meter
from workbench.runs import RoundRecord, Run, RunResult, TokenRecord
from workbench.settings import Settings

UPDATE_SECONDS = 0.1  # between two updates at least: per-token updates of five panels more than doubled the wall time


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


def encode_prompt(pair: ModelPair, prompt: str, chat_template: bool = False) -> list[int]:
    """The prompt's token ids as a comparison uses them. Raises InputError where there is no chat template to apply."""


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
    the models and the decoder alone, however slowly the caller draws.
    """
