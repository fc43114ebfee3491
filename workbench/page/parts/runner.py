"""Run, Stop and Leave: how every tab runs a study and follows it."""

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import gradio as gr
import torch

from decoders import InputError, default_device
from workbench.measuring.job import OUT_OF_MEMORY
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.parts import words
from workbench.page.widgets.handlers import DEVICE, QUIET
from workbench.page.widgets.messages import Faults, NotedForm, Updates
from workbench.runs.estimates import rows, unsteady
from workbench.runs.events import Ended, Event, Finished, Started
from workbench.studies.study import Study

HERE = ("127.0.0.1", "::1")
# A browser on the cores that decode may draw for so long, while the clock stands still: an update, and what has finished.
DRAWING_SECONDS, PANEL_SECONDS = 0.05, 0.3
log = logging.getLogger(__name__)


class Follower(Protocol):
    """What a tab shows of a study while it runs."""

    def begin(self) -> Updates: ...

    def update(self, event: Event) -> Updates:
        """{} if there is nothing to draw yet."""
        ...


@dataclass(frozen=True)
class Ticket:
    """A study that was found in order, and the pair to run it on."""

    study: Study
    choice: PairChoice


@dataclass(frozen=True)
class Wiring:
    """What a tab gives its runner.

    form, choice   the noted form, and the state that holds the chosen pair;   more  states that `study` takes besides
    study          makes the study from the form's values; raises Faults, or InputError, which is shown at `field`
    looked_at      components that `follow` takes besides the study;   outputs  what the follower draws on
    """

    form: NotedForm
    choice: gr.State
    more: Sequence[Any]
    study: Callable[..., Study]
    field: Any
    looked_at: Sequence[Any]
    follow: Callable[..., Follower]
    outputs: Sequence[Any]


class Runner:
    """The buttons and the progress line of one tab. `name` tells apart the jobs that a visitor runs in two tabs."""

    def __init__(self, host: Host, name: str):
        self.host, self.name = host, name

    def lay_out_buttons(self, label: str, prefix: str = "") -> None:
        self.prefix = prefix
        # Not before the page shows what its address asks for: a click would run what it shows until then.
        self.run = gr.Button(label, variant="primary", size="lg", elem_id=f"{prefix}run", interactive=False)
        self.stop = gr.Button("Stop", variant="stop", size="lg", visible=False, elem_id=f"{prefix}stop")
        self.leave = gr.Button("Leave the queue", size="lg", visible=False, elem_id=f"{prefix}leave")

    def lay_out_progress(self, prefix: str = "") -> None:
        self.progress = gr.HTML(elem_id=f"{prefix}progress", elem_classes="wb-note")
        self.again = gr.Button("Measure again", size="sm", visible=False, elem_id=f"{prefix}again", scale=0)
        # The ticket stays on the server; its number, new at each click, is what starts the run.
        self._ticket, self._number = gr.State(), gr.Textbox(visible="hidden")

    @property
    def outputs(self) -> list[Any]:
        return [self.progress, self.run, self.stop, self.leave, self.again]

    @property
    def starting(self) -> list[Any]:
        """What a study that begins changes."""
        return [self._ticket, self._number, *self.outputs]

    def wire(self, wiring: Wiring) -> None:
        self.wiring = wiring
        inputs = [wiring.form.values, wiring.choice, *wiring.more]
        asked = self.run.click(self._ask, inputs, [*self.starting, wiring.form.faults], **QUIET)
        wiring.form.tell(asked)
        # Input that `_ask` rejects gives no ticket, and so neither queues nor runs.
        started = self._number.change(
            self._run, [self._ticket, *wiring.looked_at], [*self.outputs, *wiring.outputs],
            show_progress="minimal", show_progress_on=self.progress, js=f"WorkbenchPage.began('{self.prefix}')", **DEVICE,
        )  # fmt: skip
        started.then(self.idle, None, self.outputs, **QUIET)  # whatever happened in `_run`, or to it
        self.stop.click(self._stop, None, None, **QUIET)
        self.again.click(self._queued, None, [self._number, *self.outputs], **QUIET)
        self.leave.click(self._left, None, self.outputs, cancels=[started], **QUIET)

    def idle(self) -> Updates:
        return self._visible(self.run)

    # ---- handlers

    def _ask(self, noted: list[Any], choice: PairChoice, *more: Any) -> Updates:
        """A ticket and a place in the queue; or what is wrong, at its field."""
        wiring = self.wiring
        try:
            started = self.start(wiring.study(wiring.form.read(noted), *more), choice)
        except Faults as faults:
            return wiring.form.told(faults.messages)
        except Exception as error:
            return wiring.form.told({wiring.field: sentence(error)})
        return {**wiring.form.told({}), **started}

    def start(self, study: Study, choice: PairChoice) -> Updates:
        """A ticket for this study and a place in the queue: updates of `starting`. Raises InputError if it cannot be run."""
        self.host.check(study, choice)
        return {self._ticket: Ticket(study, choice), **self._queued()}

    def _queued(self) -> Updates:
        """The ticket of the last click is run as soon as the device is free; until then there is a way out of the queue."""
        waiting = {self.progress: words.note("Waiting for the device."), self.again: gr.update(visible=False)}
        return {self._number: secrets.token_hex(8), **waiting, **self._visible(self.leave)}

    def _run(self, ticket: Ticket | None, request: gr.Request, *looked_at: Any) -> Iterator[Updates]:
        """One study, streamed. Closing this generator, as when the tab is closed, ends the decoder and frees its memory;
        what was finished is kept."""
        if ticket is None:  # a client made up a number
            return
        follower, shared = self.wiring.follow(ticket.study, *looked_at), shares_cores(request)
        with self.host.stoppable((request.session_hash, self.name)) as stopped:
            yield {**follower.begin(), **self._visible(self.stop), self.progress: words.note("Preparing the models.")}
            try:
                with closing(self.host.run(ticket.study, ticket.choice, stopped)) as events:
                    yield from self._followed(events, follower, shared)
            except Exception as error:
                yield {self.progress: words.note(sentence(error), "alert")}

    def _followed(self, events: Iterator[Event], follower: Follower, shared: bool) -> Iterator[Updates]:
        kept = ""  # as which run it is kept if the visitor leaves
        for event in events:
            updates = follower.update(event)
            if isinstance(event, Ended):
                again = gr.update(visible=any(unsteady(row) for row in rows(event.run.results)))
                yield {**updates, self.progress: words.ended(event), self.again: again}
                return
            if isinstance(event, Finished):
                kept = event.run.id
            if isinstance(event, Finished) and not updates:
                continue  # drawn with what follows at once
            yield {**updates, self.progress: words.progress(event, kept)}
            if shared:
                whole = isinstance(event, Finished) or (isinstance(event, Started) and event.at.lap == 0)
                time.sleep(PANEL_SECONDS if updates and whole else DRAWING_SECONDS)
        yield {self.progress: words.note("Stopped.")}

    def _stop(self, request: gr.Request) -> None:
        self.host.stop((request.session_hash, self.name))

    def _left(self) -> Updates:
        return {self.progress: words.note("You left the queue."), **self.idle()}

    def _visible(self, shown: gr.Button) -> Updates:
        return {button: gr.update(visible=button is shown) for button in (self.run, self.stop, self.leave)}


def sentence(error: Exception) -> str:
    """What to tell a visitor about an exception; unforeseen ones also go to the log."""
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, gr.Error):
        return str(error.message)
    log.exception("a study broke down")
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return OUT_OF_MEMORY
    return f"Something went wrong here ({type(error).__name__}); the server's log says more. Try again."


def shares_cores(request: gr.Request) -> bool:
    """Whether the visitor's browser runs on this machine, and its processor decodes."""
    return default_device().type == "cpu" and getattr(request.client, "host", None) in HERE
