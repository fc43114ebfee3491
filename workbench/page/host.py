"""What the page's handlers share: the device and its pair, the past runs, the limits of this place, and who asked to stop."""

import logging
import threading
from collections.abc import Generator, Hashable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

from decoders import InputError
from workbench.measuring import branch
from workbench.measuring.admit import admit, encode_prompt
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice
from workbench.runs.estimates import label
from workbench.runs.events import Ended, Event, Finished
from workbench.runs.record import Run
from workbench.runs.store import RunStore
from workbench.studies.comparison import Comparison
from workbench.studies.limits import Limits
from workbench.studies.prompts import is_text
from workbench.studies.study import Study

NO_DRAFT = "The pair in use has no draft model: choose one under Models in the Compare tab, or untick {}."
log = logging.getLogger(__name__)


@dataclass
class Host:
    limits: Limits = field(default_factory=Limits.from_environment)
    store: RunStore = field(default_factory=RunStore)
    pairs: PairKeeper | None = None
    fault: str | None = None  # why the embedded pair is missing

    def __post_init__(self) -> None:
        self.pairs = self.pairs or PairKeeper(self.limits.custom_models)
        self.device = Device(self.pairs)
        self._stops: dict[Hashable, threading.Event] = {}

    def check(self, study: Study, choice: PairChoice) -> None:
        """Raises InputError for a study that cannot be run here. Nothing is loaded and nothing runs; what depends on a pair that
        is not in memory shows once it is loaded."""
        self.limits.check(study)
        if (pair := self.device.keeper.peek(choice)) is not None:
            if pair.draft is None and (names := [label(m.name) for m in study.settings.methods if m.uses_draft]):
                raise InputError(NO_DRAFT.format(", ".join(names)))
            admit(pair, study)

    def run(
        self, study: Study, choice: PairChoice, stopped: threading.Event | None = None
    ) -> Generator[Event, None, None]:
        """The events of the study on the device; its run is kept if it can be, and what is finished of it also when the visitor leaves
        or it breaks down. To be called by one visitor at a time.

        Raises InputError for a study that the limits or the pair refuse.
        """
        self.limits.check(study)
        finished: Run | None = None
        try:
            with closing(self.device.run(study, choice, stopped)) as events:
                for event in events:
                    finished = event.run if isinstance(event, Finished) else finished
                    if isinstance(event, Ended):
                        finished = None
                        event = self._kept(event) if event.run.results else event
                    yield event
            if finished is not None:  # a GPU that was borrowed is given back at once, without a last event
                ended, finished = Ended(replace(finished, cancelled=True)), None
                yield self._kept(ended)
        finally:
            if finished is not None:
                self._kept(Ended(replace(finished, cancelled=True)))

    def _kept(self, event: Ended) -> Ended:
        """The event after its run is in the store, or with the reason why it is not: what was measured is shown all the same."""
        try:
            self.store.save(event.run)
        except InputError as error:
            return replace(event, unkept=str(error))
        except Exception as error:
            log.exception("a run was not kept")
            why = f"This run could not be kept ({type(error).__name__}); the server's log says more."
            return replace(event, unkept=why)
        return event

    def alternatives(
        self, id: str, where: branch.At, choice: PairChoice, token: int | str | None = None
    ) -> tuple[list[branch.Choice], int | None]:
        """What else could stand at a place of a kept run's text, `token` among it, and the id of `token`. To be called by one visitor at
        a time. Raises InputError."""
        run = self.store.get(id)
        return self.device.ask(choice, branch.listed, run, where, token)

    def branch(
        self, id: str, where: branch.At, choice: PairChoice, token: int | str, names: Sequence[str] | None = None
    ) -> Comparison:
        """The study that continues a kept run's text from a place. Raises InputError, also if the pair is not in memory."""
        if (pair := self.device.keeper.peek(choice)) is None:
            raise InputError(f"{choice.title} is not loaded; press Load under Models first.")
        return branch.branch(pair, self.store.get(id), where, token, names)

    def tokens(self, prompt: str, chat_template: bool, choice: PairChoice) -> tuple[int, int | None] | None:
        """The prompt's tokens and the pair's positions (None for no limit); None if the pair is not in memory.
        What is no text has no tokens."""
        pair = self.device.keeper.peek(choice)
        if pair is None:
            return None
        return len(encode_prompt(pair, prompt, chat_template)) if prompt and is_text(prompt) else 0, pair.positions

    def offers(self, choice: PairChoice) -> dict[str, bool]:
        """Which settings mean something for a pair, as far as that depends on it."""
        pair = self.device.keeper.peek(choice)
        return {
            "chat_template": bool(pair and getattr(pair.tokenizer, "chat_template", None)),
            "penalties": bool(pair and pair.penalties),
        }

    @contextmanager
    def stoppable(self, job: Hashable) -> Iterator[threading.Event]:
        """The event that `stop(job)` sets, while the block runs."""
        stopped = self._stops[job] = threading.Event()
        try:
            yield stopped
        finally:
            if self._stops.get(job) is stopped:
                del self._stops[job]

    def stop(self, job: Hashable) -> None:
        if job in self._stops:
            self._stops[job].set()

    def open(self) -> None:
        """Load the embedded pair; if it is missing, the page says so when a visitor comes."""
        try:
            self.device.pair(PairChoice())
        except InputError as error:
            self.fault = str(error)
