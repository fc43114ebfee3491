"""The card "Will speculative decoding pay here?", which advises on the pair that is loaded."""

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import gradio as gr

from workbench.kinds.advice import words as advice
from workbench.kinds.advice.advisor import MOST_PROMPTS, Advice, Step, advise
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.parts import words
from workbench.page.parts.runner import sentence
from workbench.page.widgets.handlers import DEVICE, QUIET
from workbench.show import tables
from workbench.studies import prompts
from workbench.studies.settings import Settings

SAYS = (
    "Predicts from acceptance and costs whether speculative decoding pays with this pair on this "
    "machine, and shows measurements beside the prediction."
)
NEW_TOKENS = 48
JOB = "advice"
QUEUED = "(...asked) => { WorkbenchPage.queued('advice-answer'); return asked; }"
TURN_SECONDS = 0.2  # how soon Stop is heard while something else has the device


class AdviceCard:
    """The card, with a button to ask, to stop and to leave the queue.

    Args:
        host: the page's host
        pair: the pair that is loaded
    """

    def __init__(self, host: Host, pair: gr.State):
        self.host = host
        with gr.Accordion(
            "Will speculative decoding pay here?", open=False, elem_id="experiment-advice"
        ):
            gr.Markdown(SAYS, elem_classes="wb-note")
            with gr.Row():
                self.temperature = gr.Number(
                    1.0, label="Temperature", minimum=0, maximum=100, min_width=140,
                    elem_id="advice-temperature",
                )  # fmt: skip
                self.count = gr.Number(
                    5, label="Prompts", precision=0, minimum=1, maximum=MOST_PROMPTS,
                    min_width=140, elem_id="advice-count",
                )  # fmt: skip
                self.ask = gr.Button("Ask", elem_id="advice-ask", min_width=140)
                self.stop = gr.Button(
                    "Stop", variant="stop", visible=False, elem_id="advice-stop", min_width=140
                )
                self.leave = gr.Button(
                    "Leave the queue", visible=False, elem_id="advice-leave", min_width=140
                )
            self.answer = gr.HTML(elem_id="advice-answer", elem_classes="wb-note")
        asked, shown = [self.temperature, self.count, pair], [self.answer, *self.buttons]
        waits = self.ask.click(
            lambda: self._shown(words.note("Waiting for the device."), self.leave),
            None,
            shown,
            **QUIET,
        )
        asks = waits.then(
            self._advise, asked, shown, js=QUEUED,
            show_progress="minimal", show_progress_on=self.answer, **DEVICE,
        )  # fmt: skip
        self.stop.click(self._stop, None, None, **QUIET)
        self.leave.click(
            lambda: self._shown(words.note("You left the queue."), self.ask),
            None,
            shown,
            cancels=[asks],
            **QUIET,
        )

    @property
    def buttons(self) -> list[gr.Button]:
        return [self.ask, self.stop, self.leave]

    def _advise(
        self, temperature: float | None, count: float | None, pair: PairChoice, visit: gr.Request
    ) -> Iterator[list[Any]]:
        yield self._shown(words.note("Preparing the models."), self.stop)
        said = words.note("Stopped.")
        try:
            asked = {"temperature": float(temperature or 0), "max_new_tokens": NEW_TOKENS}
            settings = Settings.from_json({"decoders": ["greedy"], **asked})
            stories = prompts.built_in("stories").first(min(int(count or 1), MOST_PROMPTS))
            texts = [story.text for story in stories.prompts]
            with self.host.stoppable((visit.session_hash, JOB)) as stopped:
                models = self.host.device.pair(pair)
                happening = self._steps(
                    partial(advise, models, texts, settings, cancelled=stopped.is_set), stopped
                )
                with closing(happening):
                    for found in happening:
                        if isinstance(found, Step):
                            yield self._shown(_progress(found), self.stop)
                        else:
                            said = _answer(found)
        except Exception as error:
            said = words.note(sentence(error), "alert")
        yield self._shown(said, self.ask)

    def _steps(
        self, make: Callable[[], Generator[Step | Advice, None, None]], stopped: threading.Event
    ) -> Generator[Step | Advice, None, None]:
        """The advisor's steps once the device is free; none if it is stopped before."""
        device = self.host.device
        while not device.turn.acquire(timeout=TURN_SECONDS):
            if stopped.is_set():
                return
        try:
            with closing(device.iterate(make)) as happening:
                yield from happening
        finally:
            device.turn.release()

    def _stop(self, visit: gr.Request) -> None:
        self.host.stop((visit.session_hash, JOB))

    def _shown(self, answer: str, button: gr.Button) -> list[Any]:
        return [answer, *(gr.update(visible=each is button) for each in self.buttons)]


def _progress(step: Step) -> str:
    left = f" · about {words.seconds_left(step.left)} left" if step.left is not None else ""
    return words.note(f"{step.says}{left}") + words.bar(step.done / step.total)


def _answer(found: Advice) -> str:
    doubts = advice.doubts(found)
    warning = words.note(doubts, "alert") if doubts else ""
    return warning + words.note(advice.verdict(found)) + tables.markup(advice.lines(found))
