"""What the endpoints answer, as types: their documentation, and the schemas of agents' tools.

An answer may have more than its type names; all of a run's JSON is described under Records.
"""

from typing import Any

from typing_extensions import TypedDict  # pydantic needs it before Python 3.12


class Token(TypedDict):
    """A token of a text: where it came from, and its probabilities (None where there are none)."""

    id: int
    text: str
    fate: str
    round: int
    p: float | None
    q: float | None


class Result(TypedDict, total=False):
    """What one decoder made.

    `metrics` has tokens_per_second, new_tokens and others by name; `error` is a sentence, if it
    failed.
    """

    decoder: str
    text: str
    tokens: list[Token]
    rounds: list[dict[str, Any]]
    metrics: dict[str, Any]
    samples: list[dict[str, Any]]
    error: str | None
    x_greedy: float | None


class Answer(TypedDict, total=False):
    """A run: what was asked, where it ran, and each decoder's result; `id` opens it again."""

    id: str
    kind: str
    created: str
    prompt: str | list[dict[str, str]]
    settings: dict[str, Any]
    environment: dict[str, Any]
    results: list[Result]
    unkept: str


class Drawn(Answer, total=False):
    """A run of draws; `findings` says for each decoder how far off the exact law it is."""

    findings: list[dict[str, Any]]


class Alternative(TypedDict):
    """A token that could stand at a place, with its probabilities."""

    id: int
    text: str
    raw: float
    warped: float | None


class Alternatives(TypedDict):
    """The likeliest tokens at a place."""

    alternatives: list[Alternative]


class Verdict(TypedDict):
    """Why two greedy texts part: `verdict` in a word, `says` in a sentence."""

    verdict: str
    says: str
