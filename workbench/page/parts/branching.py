"""Branching on the page: what the strip of panels asks, and how it is answered."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import gradio as gr

from decoders import InputError
from workbench.measuring.branch import At
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.parts.results import ComparisonResults
from workbench.page.parts.runner import Runner, sentence
from workbench.page.widgets.handlers import DEVICE, QUIET
from workbench.page.widgets.messages import Updates
from workbench.studies.prompts import is_text

Asked = dict[str, Any]


class Branching:
    """Answers for tokens of the strip: their alternatives, from the models; and a run that continues from one of them."""

    def __init__(self, host: Host, runner: Runner, results: ComparisonResults, choice: gr.State):
        self.host, self.runner, self.answer = host, runner, results.alternatives
        results.strip.select(self._look, choice, self.answer, show_progress="hidden", **DEVICE)
        results.strip.submit(self._branch, choice, [self.answer, *runner.starting], **QUIET)

    def _look(self, choice: PairChoice, event: gr.EventData) -> Asked:
        """What else could stand there, once the device is free."""
        asked: Any = data(event)

        def look() -> Asked:
            found, wanted = self.host.alternatives(asked.get("run"), place(asked), choice, asked.get("token"))
            return {"choices": [asdict(each) for each in found], "wanted": wanted}

        return {**answered(asked), **guarded(look)}

    def _branch(self, choice: PairChoice, event: gr.EventData) -> Updates:
        """A place in the queue for the run that continues from there; or what is wrong, where it was asked."""
        asked: Any = data(event)

        def begin() -> Updates:
            study = self.host.branch(asked.get("run"), place(asked), choice, asked.get("token"), names(asked))
            return self.runner.start(study, choice)

        found = guarded(begin)
        return {self.answer: {**answered(asked), **found}} if "error" in found else found


def guarded(do: Callable[[], dict[Any, Any]]) -> dict[Any, Any]:
    """What `do` returns, or {"error": a sentence}."""
    try:
        return do()
    except Exception as error:
        return {"error": sentence(error)}


def data(event: gr.EventData) -> Asked:
    """What the strip sent; a client may send anything."""
    found = getattr(event, "_data", None)
    return found if isinstance(found, dict) else {}


def answered(asked: Asked) -> Asked:
    """What tells the strip which question this answers; no two have the same."""
    return {"ask": asked.get("ask")}


def place(asked: Asked) -> At:
    """Raises InputError for what no strip sends."""
    found = [asked.get(name) for name in ("run", "decoder", "at", "token")]
    if not all(isinstance(each, str) for each in found[:2]) or not isinstance(found[3], (int, str, type(None))):
        raise InputError("A token is asked for by its run, its decoder and its place.")
    if not all(is_text(each) for each in found if isinstance(each, str)):
        raise InputError("That is half a character (a lone surrogate), which no token is; type it again.")
    return At(asked["decoder"], asked["at"])


def names(asked: Asked) -> list[str]:
    found = asked.get("decoders")
    if not isinstance(found, list) or not found:
        raise InputError("No decoder is chosen; choose at least one.")
    return found
