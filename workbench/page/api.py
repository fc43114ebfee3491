"""The documented endpoints: the page's jobs for a program."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import gradio as gr

from decoders import InputError
from decoders.errors import quoted
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.parts.runner import sentence
from workbench.runs.events import Ended
from workbench.studies.settings import Settings
from workbench.studies.study import Study


def offer(job: Callable[..., Any]) -> None:
    """Offer a job as an endpoint of its name.

    Gradio shows its docstring in the documentation of the API and to agents (MCP). Each parameter
    must stand on one line there; the lines of `Returns` are joined with commas.
    """
    gr.api(job, api_name=job.__name__, concurrency_id="device", concurrency_limit=1)


def answers(
    host: Host, make: Callable[[], Study], answer: Callable[..., dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Run a study.

    Args:
        host: the page's host
        make: makes the study
        answer: turns the run, and the reason why it could not be kept, into the answer

    Yields:
        empty answers while it runs, and last the answer

    Raises:
        gr.Error: for input that cannot be used, in one sentence
    """
    # Answers in between let the server notice that a client has gone; the last one counts.
    with told(), closing(host.run(make(), PairChoice())) as events:
        for event in events:
            yield answer(event.run, event.unkept) if isinstance(event, Ended) else {}


@contextmanager
def told() -> Iterator[None]:
    """Turn any error into one sentence."""
    try:
        yield
    except Exception as error:
        raise gr.Error(sentence(error), print_exception=False) from error


def asked(decoders: Any, settings: Any) -> Settings:
    """The settings that a program asks for.

    Args:
        decoders: names of the catalog
        settings: the other settings, or None

    Raises:
        InputError: if they cannot be used
    """
    return Settings.from_json(plain(decoders, settings))


def plain(decoders: Any, settings: Any) -> dict[str, Any]:
    """The same as one object, unchecked; raises InputError if `settings` names other decoders."""
    if settings is not None and not isinstance(settings, dict):
        raise InputError(f"`settings` must be one JSON object, not {quoted(settings)}.")
    data = {"decoders": decoders, **(settings or {})}
    if data["decoders"] != decoders:
        raise InputError(
            "`settings` names other decoders than `decoders` does; name them in `decoders` alone."
        )
    return data
