"""Run, Stop and Leave: the part of every tab that runs a study and follows it."""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import gradio as gr
import torch

from decoders import InputError, default_device
from decoders.devices import device_of
from workbench.measuring.job import OUT_OF_MEMORY
from workbench.models.keeper import PairError
from workbench.models.presets import PairChoice
from workbench.page import words
from workbench.page.host import Host
from workbench.page.widgets import DEVICE, QUIET, Faults, Updates
from workbench.runs.events import Ended, Event, Finished, Progress, Started
from workbench.runs.figures import rows, unsteady
from workbench.runs.record import Run
from workbench.studies.study import Study

HERE = ("127.0.0.1", "::1")
# While the clock stands still, a browser on these cores may draw an update, a finished panel.
DRAWING_SECONDS, PANEL_SECONDS, FIGURES_SECONDS = 0.01, 0.02, 0.5
log = logging.getLogger(__name__)
Renew = Callable[[], tuple[Study, Run]]


@dataclass(frozen=True)
class Ticket:
    """A study that passed all checks, and the pair to run it on.

    Attributes:
        study: the study
        choice: the pair
        renew: if the study adds to a run, makes it for that run as it is by now; gives both
    """

    study: Study
    choice: PairChoice
    renew: Renew | None = None


class Follower(Protocol):
    """The part of a tab that shows a study while it runs."""

    def begin(self) -> Updates: ...

    def update(self, event: Started | Progress | Finished) -> Updates:
        """{} if there is nothing to draw yet."""


class Runner:
    """The buttons and progress line of a tab, whose `name` tells a visitor's jobs apart."""

    def __init__(self, host: Host, name: str, prefix: str):
        self.host, self.name, self.prefix = host, name, prefix

    def lay_out_buttons(self, label: str) -> None:
        # Disabled until the page shows its address: a click would run the study shown before.
        self.run = gr.Button(
            label, variant="primary", size="lg", interactive=False,
            elem_id=f"{self.prefix}run", elem_classes="wb-run",
        )  # fmt: skip
        self.stop = gr.Button(
            "Stop", variant="stop", size="lg", visible=False,
            elem_id=f"{self.prefix}stop", elem_classes="wb-stop",
        )  # fmt: skip
        self.leave = gr.Button(
            "Leave the queue", size="lg", visible=False,
            elem_id=f"{self.prefix}leave", elem_classes="wb-leave",
        )  # fmt: skip

    def lay_out_again(self) -> None:
        self.again = gr.Button(
            "Measure again", size="sm", visible=False, elem_id=f"{self.prefix}again", scale=0,
            min_width=120,
        )  # fmt: skip

    @property
    def outputs(self) -> list[Any]:
        return [self.progress, self.run, self.stop, self.leave, self.again]

    @property
    def starting(self) -> list[Any]:
        """What a study changes when it begins."""
        return [self._ticket, self._number, *self.outputs]

    def lay_out_progress(self) -> None:
        self.progress = gr.HTML(
            elem_id=f"{self.prefix}progress", elem_classes=["wb-note", "wb-progress"]
        )
        self.place = gr.HTML(visible="hidden", elem_id=f"{self.prefix}place")  # in the queue
        # The ticket stays on the server; its number, new at each click, starts the run.
        self._ticket, self._number = gr.State(), gr.Textbox(visible="hidden")

    def wire(self, tab: Any) -> None:
        """Connect the buttons with the form, the study and the results of a `StudyTab`."""
        self.tab = tab
        tab.noted.tell(
            self.run.click(
                self._ask,
                [tab.noted.values, tab.pair, *tab.more],
                [*self.starting, tab.noted.faults, *tab.doors],
                js=tab.noted.asked,
                **QUIET,
            )
        )
        # Input that `_ask` rejects gives no ticket, so it neither queues nor runs.
        started = self._number.change(
            self._run, [self._ticket, *tab.looked_at],
            [*self.outputs, *tab.results.outputs],
            show_progress="minimal", show_progress_on=self.place,
            js=f"WorkbenchPage.began('{self.prefix}')", **DEVICE,
        )  # fmt: skip
        started.then(self.idle, None, self.outputs, **QUIET)  # however `_run` ended
        self.stop.click(self._stop, None, None, **QUIET)
        self.again.click(self._queued, None, [self._number, *self.outputs], **QUIET)
        self.leave.click(self._left, None, self.outputs, cancels=[started], **QUIET)

    def idle(self) -> Updates:
        return self._visible(self.run)

    # ---- handlers

    def _ask(self, noted: list[Any], choice: PairChoice, *more: Any) -> Updates:
        form = self.tab.noted
        try:
            started = self.start(self.tab.asked_for(form.read(noted), *more), choice)
        except Faults as faults:
            return {**form.told(faults.messages), **self.tab.unfolded(faults.messages)}
        except Exception as error:
            return form.told({self.tab.inputs[0]: sentence(error)})
        return {**form.told({}), **started}

    def start(self, study: Study, choice: PairChoice, renew: Renew | None = None) -> Updates:
        """Updates of `starting` that queue a study; raises InputError if it cannot be run."""
        self.host.check(study, choice)
        return {self._ticket: Ticket(study, choice, renew), **self._queued()}

    def _queued(self) -> Updates:
        """Updates that run the last ticket once the device is free; until then one may leave."""
        self.host.hurry()
        return {
            self._number: secrets.token_hex(8),
            self.progress: words.note("Waiting for the device."),
            **self._visible(self.leave),
            self.again: gr.update(visible=False),
        }

    def _run(
        self, ticket: Ticket | None, request: gr.Request, *looked_at: Any
    ) -> Iterator[Updates]:
        """Updates of one study while it runs.

        If this is closed, as with the tab, the decoder ends; the finished part is kept.
        """
        if ticket is None:  # a client made up a number
            return
        follower = self.tab.follow(ticket.study, *looked_at)
        # Whether the visitor's browser runs on this machine, and its processor decodes.
        here = getattr(request.client, "host", None) in HERE
        shared = here and device_of(default_device()).on_host
        with self.host.stoppable((request.session_hash, self.name)) as stopped:
            # An earlier run stays in view if the study adds to it.
            yield {
                **(follower.begin() if ticket.renew is None else {}),
                **self._visible(self.stop),
                self.progress: words.note("Preparing the models."),
            }
            try:
                # A run may have grown while this waited; now no other visitor adds to it.
                study, earlier = ticket.renew() if ticket.renew else (ticket.study, None)
                with closing(self.host.run(study, ticket.choice, stopped, earlier)) as events:
                    yield from self._followed(ticket, events, follower, shared, stopped, *looked_at)
            except Exception as error:
                yield {self.progress: words.note(sentence(error), "alert")}

    def _followed(
        self,
        ticket: Ticket,
        events: Iterator[Event],
        follower: Follower,
        shared: bool,
        stopped: threading.Event,
        *looked_at: Any,
    ) -> Iterator[Updates]:
        kept, told = "", False  # the id of the run once a part is finished; whether it was shown

        def seen(updates: Updates) -> Updates:
            return updates if self.host.in_view(stopped) else {self.progress: gr.skip()}

        for event in events:
            if isinstance(event, Ended):
                yield {**seen(self._ended(event, ticket, told, *looked_at)), **self.idle()}
                return
            if isinstance(event, Finished):
                kept = event.run.id
            if told:  # what is read stays as it is while it is timed
                yield seen({self.progress: words.timing_on(event)})
                continue
            if self.tab.times_quietly and isinstance(event, Finished) and event.at.last_text:
                told = True
                self.host.time_quietly(stopped)
                whole = self.tab.results.show(
                    event.run, bool(event.unkept), settled=event.at.laps == 1
                )
                yield {**seen({**whole, self.progress: words.timing_on(event)}), **self.idle()}
                if shared:  # what is timed next would wait for that drawing, and it for the timing
                    stopped.wait(FIGURES_SECONDS)
                continue
            updates = follower.update(event)
            if isinstance(event, Finished) and not updates:
                continue  # drawn with the next event, which follows at once
            yield seen({**updates, self.progress: words.progress(event, kept)})
            if shared:
                whole = isinstance(event, Finished) or (
                    isinstance(event, Started) and event.at.lap == 0
                )
                time.sleep(PANEL_SECONDS if updates and whole else DRAWING_SECONDS)
        yield seen({self.progress: words.note("Stopped.")})

    def _ended(self, event: Ended, ticket: Ticket, told: bool, *looked_at: Any) -> Updates:
        """Updates for the end; if the run is in view, only its figures settle."""
        run, results = event.run, self.tab.results
        updates: Updates = {}
        if told:
            updates = results.settle(run)
            if event.unkept:
                updates |= results.kept.show(run, True)
        elif run.results:
            updates = results.show(run, bool(event.unkept), *looked_at)
        return {
            **updates,
            self.progress: words.ended(event),
            # What was added to a run would be added a second time.
            self.again: gr.update(
                visible=not ticket.renew and any(map(unsteady, rows(run.results)))
            ),
        }

    def _stop(self, request: gr.Request) -> None:
        self.host.stop((request.session_hash, self.name))

    def _left(self) -> Updates:
        return {self.progress: words.note("You left the queue."), **self.idle()}

    def _visible(self, shown: gr.Button) -> Updates:
        return {
            each: gr.update(visible=each is shown) for each in (self.run, self.stop, self.leave)
        }


def sentence(error: Exception) -> str:
    """A sentence for a visitor about an exception; unforeseen ones also go to the log."""
    if isinstance(error, PairError):
        return f"{error} Load another pair under Models in the Compare tab."
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, gr.Error):
        return str(error.message)
    log.exception("a study broke down")
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return OUT_OF_MEMORY
    return f"Something went wrong ({type(error).__name__}); the server's log says more. Try again."
