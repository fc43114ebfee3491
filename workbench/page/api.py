"""The one documented endpoint, `/compare`: the page's job for a program."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gradio as gr

from decoders import InputError
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.parts.runner import sentence
from workbench.runs.estimates import rows, times_greedy
from workbench.runs.events import Ended
from workbench.runs.record import Run
from workbench.studies.comparison import Comparison
from workbench.studies.settings import Settings


def add_endpoint(host: Host) -> None:
    # Gradio hands the docstring, in this form of its own, to the pages of the API and to agents (MCP).
    def compare(prompt: str, decoders: list[str], settings: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Decode one prompt with several decoders on the embedded pair, one after another, and compare them.

        Args:
            prompt: the text to continue
            decoders: names of the catalog, such as ["greedy", "speculative", "mtad"]
            settings: max_new_tokens, temperature, top_k, top_p, seed, repeats; and under a decoder's name its own settings
        Returns:
            the run as its JSON export has it, with prompt and settings, and each result's text, tokens, rounds and metrics
        """
        try:
            study = Comparison(prompt, asked(decoders, settings))
            # Answers in between let the server notice that a client is gone; the last one counts.
            with closing(host.run(study, PairChoice())) as events:
                for event in events:
                    yield answer(event.run, event.unkept) if isinstance(event, Ended) else {}
        except Exception as error:
            raise gr.Error(sentence(error), print_exception=False) from error

    gr.api(compare, api_name="compare", concurrency_id="device", concurrency_limit=1)


def asked(decoders: Any, settings: Any) -> Settings:
    """The settings that a program asks for. Raises InputError if they cannot be used."""
    if settings is not None and not isinstance(settings, dict):
        raise InputError(f"`settings` is one JSON object, not {settings!r:.80}.")
    return Settings.from_json({**(settings or {}), "decoders": decoders})


def answer(run: Run, unkept: str | None = None) -> dict[str, Any]:
    """The run's JSON, with what version 1 had at the top: the prompt, the settings, and each result's own sample."""
    data = run.to_json()
    x_greedy = {
        id(r): times_greedy(r, g) for row in rows(run.results) for r, g in zip(row.results, row.greedy, strict=True)
    }
    for result, plain in zip(run.results, data["results"], strict=True):
        plain |= {**plain["samples"][0], "error": result.error, "x_greedy": x_greedy[id(result)]}
    return {**data, **run.study, **({"unkept": unkept} if unkept else {})}
