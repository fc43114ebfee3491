"""The documented endpoints: the page's jobs for a program, and the types of their answers.

An answer may have more than its type names; all of a run's JSON is described under Records.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import gradio as gr
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from decoders import InputError
from decoders.errors import quoted
from workbench.kinds import registry
from workbench.models.presets import PairChoice, tuned
from workbench.page.host import Host
from workbench.page.runner import sentence
from workbench.runs.events import Ended
from workbench.runs.record import Run
from workbench.studies.study import Study


class Token(TypedDict):
    """A token of a text, with its fate and its probabilities; these are None if it has none."""

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


class DrawAnswer(Answer, total=False):
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


Jobs = tuple[Callable[..., Any], ...]


def jobs(host: Host) -> Iterator[Callable[..., Any]]:
    """All jobs: functions with one JSON result, whose last item counts if they yield several.

    Their docstrings are their documentation, for programs and agents. Each parameter must stand on
    one line there; the lines of `Returns` are joined with commas.
    """
    for kind in registry.KINDS.values():
        if hasattr(part := kind.on_page, "endpoints"):
            yield from part.endpoints(host)


def answers(
    host: Host, make: Callable[[], Study], more: Callable[[Run], dict[str, Any]]
) -> Iterator[Any]:
    """Run a study.

    The answer is the run's JSON with the fields of its study, those of `more`, and the reason why
    it could not be kept, if there is one.

    Args:
        host: the page's host
        make: makes the study
        more: gives further fields for the run

    Yields:
        empty answers while it runs, and last the answer

    Raises:
        gr.Error: for input that cannot be used, in one sentence
    """
    # Answers in between let the server notice that a client has gone; the last one counts.
    with told(), closing(host.run(make(), host.first)) as events:
        for event in events:
            if isinstance(event, Ended):
                run, unkept = event.run, {"unkept": event.unkept} if event.unkept else {}
                yield {**run.to_json(), **run.study, **more(run), **unkept}
            else:
                yield {}


@contextmanager
def told() -> Iterator[None]:
    """Turn any error into one sentence."""
    try:
        yield
    except Exception as error:
        # It may repeat half a character, which cannot be sent back.
        says = sentence(error).encode("utf-8", "replace").decode()
        raise gr.Error(says, print_exception=False) from error


def asked(
    decoders: Any, settings: Any, start: Mapping[str, Any], choice: PairChoice
) -> dict[str, Any]:
    """The settings that a program asks for, as a study has them in JSON, unchecked.

    Args:
        decoders: names of the catalog; None for those that the form begins with
        settings: the other settings, or None; those left out are the form's
        start: what the form begins with, besides the settings kept with the pair
        choice: the pair

    Raises:
        InputError: if `settings` is not an object, or names other decoders
    """
    if settings is not None and not isinstance(settings, dict):
        raise InputError(f"`settings` must be one JSON object, not {quoted(settings)}.")
    given = settings or {}
    if given.get("decoders", decoders) != decoders:
        raise InputError(
            "`settings` names other decoders than `decoders` does; name them in `decoders` alone."
        )
    own = tuned(choice)
    usual = {**own, **start}
    merged = {
        name: {**usual[name], **value} if isinstance(value, dict) and name in own else value
        for name, value in given.items()
    }
    return {**usual, **merged, **({} if decoders is None else {"decoders": decoders})}
