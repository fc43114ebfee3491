"""A run: one finished comparison as plain data, and the file that keeps runs.

The JSON of a run is these dataclasses field by field; the page, the exports, the terminal and the `/compare` endpoint read nothing else.
"""

from dataclasses import dataclass, field
from typing import Any

from workbench.meter import Energy

FORMAT = "decoding-workbench run"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the five likeliest tokens at a place: `p` under the raw target."""

    id: int
    text: str
    p: float


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token of the output.

    id, node      vocabulary id, and its node in the request's tree (as in `RoundRecord`)
    text          its piece: the pieces of all tokens, one after the other, are the output's text; of a character that spans several
                  tokens the last one has it whole and the others have ""; so has a special token such as end of sequence
    fate, round   what became of it, in which round
    p, q          the probabilities the rule compared, None where there was none;   accept_probability, u  the toss, None without one
    log_p         nats, under the raw target;   alternatives  the likeliest tokens at this place, likeliest first
    """

    id: int
    node: int
    text: str
    fate: str
    round: int | None
    p: float | None
    q: float | None
    accept_probability: float | None
    u: float | None
    log_p: float | None
    alternatives: list[Alternative]


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One token that was tried, kept or not; several draws of one node are several trials.

    node, parent  in the request's tree; nodes below `RunResult.prompt_length` are the prompt
    token, text   vocabulary id, and a label to show: its text at this place, or an approximation where a character is unfinished
    """

    node: int
    parent: int
    token: int
    text: str
    fate: str
    p: float | None
    q: float | None
    accept_probability: float | None
    u: float | None


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One turn of a decoder: all it tried, and what then stood: the first `keep` tokens of the earlier output, and after them `nodes`.

    `draft_seconds` and `verify_seconds` are the models' wall time, `target_calls` and `draft_calls` forward passes.
    """

    index: int
    trials: list[TrialRecord]
    keep: int
    nodes: list[int]
    provisional: bool
    draft_seconds: float
    verify_seconds: float
    target_calls: int
    draft_calls: int


@dataclass(frozen=True, slots=True)
class GreedyCheck:
    """Whether a lossless decoder's output at temperature 0 is greedy's, token by token.

    differs_at  index of the first token that differs, None where identical
    gap         nats between greedy's token there and the other one, under the raw target in greedy's own run; None where the other
                is not among its five likeliest
    noise       nats by which the two runs' log-probabilities of the same tokens differ up to there: forward passes of different
                shapes round differently;   dtype  of the target's weights
    near_tie    the gap is within the noise of its two sides
    """

    identical: bool
    differs_at: int | None
    gap: float | None
    noise: float | None
    near_tie: bool
    dtype: str


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one decoder did with one seed.

    metrics       by the names of `decoders.Metrics`
    finished      why it ended ("end of sequence", "budget", "cancelled", ...), None where it failed
    error         one sentence where it failed; tokens, rounds and metrics then hold what there was until then
    prompt_length tokens of the prompt;   x_greedy  its tokens/s over greedy's with the same seed, None where greedy did not run
    greedy_check  only at temperature 0, for lossless decoders, where greedy ran
    """

    decoder: str
    repeat: int
    seed: int
    prompt_length: int
    text: str
    tokens: list[TokenRecord]
    rounds: list[RoundRecord]
    metrics: dict[str, float | str | None]
    energy: Energy
    finished: str | None
    error: str | None = None
    x_greedy: float | None = None
    greedy_check: GreedyCheck | None = None


@dataclass(frozen=True)
class Run:
    """One comparison.

    id            unique, of the letters 0-9a-f;   created  UTC, ISO 8601
    prompt        as typed, before any chat template
    settings      what `workbench.settings.Settings.to_json` gives: shared settings, `decoders`, and each decoder's own under its name
    environment   device, dtype, versions and models it ran on
    results       in the order they ran: greedy first where chosen, all decoders with the first seed, then with the next
    cancelled     whether it was stopped before its end
    """

    id: str
    created: str
    prompt: str
    settings: dict[str, Any]
    environment: dict[str, Any]
    results: list[RunResult]
    cancelled: bool = False
    format: str = field(default=FORMAT)
    version: int = VERSION

    def to_json(self) -> dict[str, Any]:
        """The run as plain data for a strict JSON file: no NaN, no Infinity."""

    @staticmethod
    def from_json(text: str | bytes) -> "Run":
        """Read a run back. Raises InputError, in one sentence, for a file that is broken or not a run."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A line in the list of past runs."""

    id: str
    created: str
    prompt: str
    decoders: list[str]
    models: str


class RunStore:
    """Past runs in one SQLite file, which several processes may use at once. Every call opens, commits and closes.

    path  the file; default `runs.sqlite` in the folder WORKBENCH_DATA names, or else in the user's data directory
    """

    def __init__(self, path=None): ...

    def save(self, run: Run) -> None:
        """Keep a run; one with the same id is replaced."""

    def list(self, limit: int = 100) -> list[RunSummary]:
        """The latest runs, newest first."""

    def get(self, id: str) -> Run:
        """Raises InputError where there is no such run."""

    def delete(self, id: str) -> None:
        """Raises InputError where there is no such run."""
