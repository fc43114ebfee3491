"""Branching: answers to what the strip of panels asks, and endpoints /alternatives and /branch."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import gradio as gr

from decoders import InputError
from decoders.errors import refuse
from workbench.kinds import branch
from workbench.kinds.comparison import Comparison
from workbench.kinds.comparison.results import ComparisonResults, samples
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.runner import Answer, Jobs, Runner, answers, sentence, told
from workbench.page.widgets import DEVICE, QUIET, Updates, sent
from workbench.runs.record import Run
from workbench.studies.prompts import is_text

PLACE = ("run", "decoder", "at", "token")


def answer_branching(
    host: Host, runner: Runner, results: ComparisonResults, pair: gr.State
) -> None:
    def look(choice: PairChoice, event: gr.EventData) -> dict[str, Any]:
        question = sent(event, "ask", *PLACE)
        answer = {"ask": question.get("ask")}  # for the strip: no two questions share one
        try:
            choices, wanted = likely(host, question, choice)
        except Exception as error:
            return {**answer, "error": sentence(error)}
        return {**answer, "choices": [asdict(each) for each in choices], "wanted": wanted}

    def start(choice: PairChoice, event: gr.EventData) -> Updates:
        question = sent(event, "ask", *PLACE, "decoders")
        try:
            decoders = question.get("decoders")
            if not isinstance(decoders, list) or not decoders:
                raise InputError("No decoder is chosen; choose at least one.")
            return runner.start(continued(host, question, choice, decoders), choice)
        except Exception as error:
            return {results.answer: {"ask": question.get("ask"), "error": sentence(error)}}

    results.strip.select(look, pair, results.answer, show_progress="hidden", **DEVICE)
    results.strip.submit(start, pair, [results.answer, *runner.starting], **QUIET)


def likely(
    host: Host, question: dict[str, Any], choice: PairChoice
) -> tuple[list[branch.Candidate], int | None]:
    """The tokens that could stand at a place of a kept run's text, and the id of a typed one.

    One visitor at a time may call it.
    """
    return host.device.ask(
        choice, branch.alternatives, *place(host, question), question.get("token")
    )


def continued(
    host: Host, question: dict[str, Any], choice: PairChoice, names: Sequence[str] | None
) -> Comparison:
    where = place(host, question)
    return branch.branch(host.loaded(choice), *where, question["token"], names)


def place(host: Host, question: dict[str, Any]) -> tuple[Run, str, int]:
    """The run that a question is about, a decoder, and a place in its text.

    Raises:
        InputError: if there is no such run, and for data that no strip sends
    """
    parts: list[Any] = [question.get(name) for name in PLACE]
    run, decoder, at, token = parts
    texts = [each for each in parts if isinstance(each, str)]
    refuse(
        (
            not (
                isinstance(run, str)
                and isinstance(decoder, str)
                and isinstance(token, (int, str, type(None)))
            ),
            "Name a token by its run, its decoder and its place.",
        ),
        (
            not all(map(is_text, texts)),
            "That is half a character (a lone surrogate), not a token; type it again.",
        ),
    )
    return host.store.get(run), decoder, at


def endpoints(host: Host) -> Jobs:
    def alternatives(run: str, decoder: str, at: int) -> Answer:
        """List the tokens that could stand at a place of a comparison's text.

        They come from one pass of the large model over the tokens before the place. Each has an id,
        a text, its probability under the large model (raw) and its probability under the decoder
        (warped: 0 if the decoder never writes it, null if the decoder does not sample).

        Args:
            run: the id of a kept run
            decoder: the decoder whose text it is
            at: number of tokens of the text before the place

        Returns:
            alternatives: a list of id, text, raw and warped
        """
        with told():
            choices, _ = likely(host, {"run": run, "decoder": decoder, "at": at}, host.first)
            return {"alternatives": [asdict(each) for each in choices]}

    def branch(
        run: str, decoder: str, at: int, token: int | str, decoders: list[str] | None = None
    ) -> Iterator[Answer]:
        """Continue a comparison's text from a place with another token, as a new run.

        Args:
            run: the id of a kept run
            decoder: the decoder whose text it is
            at: number of tokens of the text to keep
            token: the token after them: its vocabulary id, or the text of a single token
            decoders: the decoders that continue; by default the one whose text it is

        Returns:
            the run as /compare gives it; its `start` names the parent
        """
        question = {"run": run, "decoder": decoder, "at": at, "token": token}
        yield from answers(host, lambda: continued(host, question, host.first, decoders), samples)

    return (alternatives, branch)
