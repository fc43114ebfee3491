"""Who runs a study: the buttons of a tab, which also follow it, and the endpoints for programs."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import gradio as gr
import torch

from decoders import InputError, default_device
from decoders.devices import device_of
from decoders.errors import quoted
from workbench.measuring.job import OUT_OF_MEMORY
from workbench.models.keeper import PairError
from workbench.models.presets import PairChoice, tuned
from workbench.page import words
from workbench.page.host import Host
from workbench.page.widgets import DEVICE, QUIET, Faults, Updates
from workbench.runs.events import Ended, Event, Finished
from workbench.runs.figures import rows, unsteady
from workbench.runs.record import Run
from workbench.studies.study import Study

HERE = ("127.0.0.1", "::1")
# While the clock stands still, a browser on these cores may draw an update, or all figures.
DRAWING_SECONDS, FIGURES_SECONDS = 0.02, 0.5
log = logging.getLogger(__name__)
# If a study adds to a run: makes it for that run as it is by now, and gives both.
Renew = Callable[[], tuple[Study, Run]]
# A study that passed all checks, the pair to run it on, and its `Renew` if it has one.
Ticket = tuple[Study, PairChoice, Renew | None]


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
        return [self._ticket, self._number, *self.outputs]

    def lay_out_progress(self) -> None:
        self.progress = gr.HTML(
            elem_id=f"{self.prefix}progress", elem_classes=["wb-note", "wb-progress"]
        )
        self.place = gr.HTML(visible="hidden", elem_id=f"{self.prefix}place")  # in the queue
        # The ticket stays on the server; its number, new at each click, starts the run.
        self._ticket, self._number = gr.State(), gr.Textbox(visible="hidden")

    def wire(self, tab: Any) -> None:
        self.tab = tab
        noted = tab.noted
        # Gradio gathers the inputs of a click before it has carried out the change just before it:
        # `asked` gives the last change, too.
        self.run.click(
            self._ask,
            [noted.values, tab.pair, *tab.more],
            [*self.starting, noted.faults, *tab.doors],
            js=f"WorkbenchPage.asked('{noted.name}')",
            **QUIET,
        ).then(
            None, noted.faults, None, js=f"WorkbenchPage.tell('{noted.name}')",
            api_visibility="private",
        )  # fmt: skip
        # Input that `_ask` rejects gives no ticket, so it neither queues nor runs.
        started = self._number.change(
            self._run, [self._ticket, self._number],
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
        return {self._ticket: (study, choice, renew), **self._queued()}

    def _queued(self) -> Updates:
        """Updates that run the last ticket once the device is free; until then one may leave."""
        return {
            self._number: self.host.ticket(),
            self.progress: words.note("Waiting for the device."),
            **self._visible(self.leave),
            self.again: gr.update(visible=False),
        }

    def _run(self, ticket: Ticket | None, number: str, request: gr.Request) -> Iterator[Updates]:
        """Updates of one study while it runs.

        If this is closed, as with the tab, the decoder ends; the finished part is kept.
        """
        if ticket is None:  # a client made up a number
            return
        study, choice, renew = ticket
        follower = self.tab.follow(study)
        # Whether the visitor's browser runs on this machine, and its processor decodes.
        here = getattr(request.client, "host", None) in HERE
        shared = here and device_of(default_device()).on_host
        with self.host.stoppable((request.session_hash, self.name)) as stopped:
            # An earlier run stays in view if the study adds to it.
            yield {
                **({} if renew else follower.begin()),
                **self._visible(self.stop),
                self.progress: words.note("Preparing the models."),
            }
            try:
                # A run may have grown while this waited; now no other visitor adds to it.
                study, earlier = renew() if renew else (study, None)
                with closing(self.host.run(study, choice, stopped, earlier)) as events:
                    for updates in self._followed(events, follower, shared, stopped, number):
                        if not self.host.in_view(stopped):
                            return
                        if renew:  # what was added to a run would be added a second time
                            updates.pop(self.again, None)
                        yield updates
            except Exception as error:
                yield {self.progress: words.note(sentence(error), "alert")}

    def _followed(
        self,
        events: Iterator[Event],
        follower: Any,
        shared: bool,
        stopped: threading.Event,
        number: str,
    ) -> Iterator[Updates]:
        kept, quiet = "", False  # the id of the run once a part is finished; whether it is shown
        for event in events:
            if isinstance(event, Ended):
                yield {**self._ended(event, quiet), **self.idle()}
                return
            if isinstance(event, Finished):
                kept = event.run.id
            pause = DRAWING_SECONDS
            if quiet:  # what is read stays as it is while it is timed
                updates = {self.progress: words.timing_on(event)}
                pause = 0.0
            elif self.tab.times_quietly and isinstance(event, Finished) and event.at.last_text:
                quiet = True
                self.host.quiet = stopped
                if number != self.host.newest:  # somebody has been waiting for these texts
                    stopped.set()
                pause = FIGURES_SECONDS
                settled = event.at.laps == 1
                whole = self.tab.results.show(event.run, bool(event.unkept), settled=settled)
                updates = {**whole, self.progress: words.timing_on(event), **self.idle()}
            else:
                updates = follower.update(event)
                if isinstance(event, Finished) and not updates:
                    continue  # drawn with the next event, which follows at once
                updates = {**updates, self.progress: words.progress(event, kept)}
            yield updates
            if shared:  # what is timed next would wait for that drawing, and it for the timing
                stopped.wait(pause)
        yield {self.progress: words.note("Stopped.")}

    def _ended(self, event: Ended, quiet: bool) -> Updates:
        """Updates for the end; if the run is in view, only its figures settle."""
        run, results = event.run, self.tab.results
        lost = f"{event.unkept} Download this run, or it is lost." if event.unkept else ""
        updates: Updates = {}
        if quiet:
            updates = results.settle(run)
            if event.unkept:
                updates |= results.kept.show(run, True)
        elif run.results:
            updates = results.show(run, bool(event.unkept))
        return {
            **updates,
            self.progress: words.outcome(run) + (lost and words.note(lost, "alert")),
            self.again: gr.update(visible=any(map(unsteady, rows(run.results)))),
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


# ---- for a program

# The JSON of an answer, which the `Returns` of each job describes; a run's is under Records.
Answer = dict[str, Any]
Jobs = tuple[Callable[..., Any], ...]


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
