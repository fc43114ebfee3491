"""The documented endpoints: the page's jobs for a program."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import Any

import gradio as gr

from decoders import InputError
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.parts.branching import place
from workbench.page.parts.runner import sentence
from workbench.runs.draws import findings
from workbench.runs.estimates import rows, times_greedy
from workbench.runs.events import Ended
from workbench.runs.record import Run
from workbench.studies.comparison import Comparison
from workbench.studies.draw import Draw
from workbench.studies.settings import Settings
from workbench.studies.study import Study


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
        yield from answers(host, lambda: Comparison(prompt, asked(decoders, settings)), answer)

    def draw(prompt: str, decoders: list[str], settings: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Continue one prompt with many seeds by each decoder on the embedded pair, and compare the draws with the exact law.

        Args:
            prompt: the text to continue
            decoders: names of the catalog, such as ["multinomial", "speculative", "mtad"]
            settings: draws (10 to 1,000), max_new_tokens, temperature, top_k, top_p, seed; and under a decoder's name its own settings
        Returns:
            the run as its JSON export has it, with each result's samples, and findings: for each decoder p, distance and what exact draws show
        """
        yield from answers(
            host, lambda: Draw.from_json({"prompt": prompt, "settings": plain(decoders, settings)}), found
        )

    def alternatives(run: str, decoder: str, at: int) -> dict[str, Any]:
        """What else could stand at a place of a comparison's text, by one pass of the large model over the tokens before it.

        Args:
            run: the id of a kept run
            decoder: the one whose text it is
            at: how many tokens of the text come before the place
        Returns:
            alternatives: a list of id, text, raw (the large model's probability) and warped (the decoder's, 0 for what it never writes, null if it does not sample)
        """
        with told():
            found, _ = host.alternatives(run, place({"run": run, "decoder": decoder, "at": at}), PairChoice())
            return {"alternatives": [asdict(each) for each in found]}

    def branch(
        run: str, decoder: str, at: int, token: int | str, decoders: list[str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Continue a comparison's text from a place with another token, as a new run that knows its parent.

        Args:
            run: the id of a kept run
            decoder: the one whose text it is
            at: how many tokens of the text are kept
            token: the token after them: its vocabulary id, or the text of a single token
            decoders: those that continue; by default the one whose text it is
        Returns:
            the run as /compare gives it; its `start` names the parent
        """
        where = {"run": run, "decoder": decoder, "at": at, "token": token}
        yield from answers(host, lambda: host.branch(run, place(where), PairChoice(), token, decoders), answer)

    for job in (compare, draw, alternatives, branch):
        gr.api(job, api_name=job.__name__, concurrency_id="device", concurrency_limit=1)


def answers(host: Host, make: Callable[[], Study], answer: Callable[..., dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Run a study, and yield what came of it last. Raises gr.Error, in one sentence, for what cannot be used."""
    # Answers in between let the server notice that a client is gone; the last one counts.
    with told(), closing(host.run(make(), PairChoice())) as events:
        for event in events:
            yield answer(event.run, event.unkept) if isinstance(event, Ended) else {}


@contextmanager
def told() -> Iterator[None]:
    """Whatever goes wrong is one sentence."""
    try:
        yield
    except Exception as error:
        raise gr.Error(sentence(error), print_exception=False) from error


def asked(decoders: Any, settings: Any) -> Settings:
    """The settings that a program asks for. Raises InputError if they cannot be used."""
    return Settings.from_json(plain(decoders, settings))


def plain(decoders: Any, settings: Any) -> dict[str, Any]:
    if settings is not None and not isinstance(settings, dict):
        raise InputError(f"`settings` is one JSON object, not {settings!r:.80}.")
    return {**(settings or {}), "decoders": decoders}


def found(run: Run, unkept: str | None = None) -> dict[str, Any]:
    """The run's JSON, and what its draws say."""
    data = {**run.to_json(), **run.study, "findings": [asdict(each) for each in findings(run)]}
    return {**data, **({"unkept": unkept} if unkept else {})}


def answer(run: Run, unkept: str | None = None) -> dict[str, Any]:
    """The run's JSON, with what version 1 had at the top: the prompt, the settings, and each result's own sample."""
    data = run.to_json()
    x_greedy = {
        id(r): times_greedy(r, g) for row in rows(run.results) for r, g in zip(row.results, row.greedy, strict=True)
    }
    for result, plain in zip(run.results, data["results"], strict=True):
        plain |= {**plain["samples"][0], "error": result.error, "x_greedy": x_greedy[id(result)]}
    return {**data, **run.study, **({"unkept": unkept} if unkept else {})}
