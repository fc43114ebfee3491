"""The host of the page: its device and pair, past runs, limits, and requests to stop."""

import logging
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from decoders import InputError, ModelPair
from decoders.errors import refuse
from decoders.inputs import Encoded, specials
from workbench.measuring.device import Device
from workbench.measuring.work import admit, encode_prompt
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice, first
from workbench.runs.events import Ended, Event, Finished, onto
from workbench.runs.figures import label
from workbench.runs.record import Run
from workbench.runs.store import RunStore
from workbench.studies.prompts import Chat, is_text
from workbench.studies.study import Limits, Study

# While a study runs, its finished part is kept in case the process is killed; the pause until the
# next time is this many times as long as keeping took.
KEPT_AGAIN_AFTER = 50
log = logging.getLogger(__name__)


@dataclass
class Host:
    """The state that all visitors of the page share.

    Attributes:
        limits: the limits of this place
        store: past runs
        pairs: loads the pairs; by default one that follows the limits
        fault: the reason why the first pair is missing, if it is
        first: the pair that the page begins with
    """

    limits: Limits = field(default_factory=Limits.from_environment)
    store: RunStore = field(default_factory=RunStore)
    pairs: PairKeeper | None = None
    fault: str | None = None
    first: PairChoice = field(default_factory=first)

    def __post_init__(self) -> None:
        self.pairs = self.pairs or PairKeeper(self.limits.custom_models, self.limits.public)
        self.device = Device(self.pairs)
        self._stops: dict[tuple[str | None, str], threading.Event] = {}  # by session and tab
        # Ends what has its texts and only times them; set when somebody waits for the device.
        self.quiet = threading.Event()
        self.newest = "0"  # the ticket of whoever pressed Run last

    def check(self, study: Study, choice: PairChoice) -> None:
        """Refuse a study that cannot be run here; nothing is loaded and nothing runs.

        Faults that depend on a pair show only if the pair is in memory, or once it is loaded.

        Args:
            study: the study
            choice: the visitor's pair

        Raises:
            InputError: if it cannot be run
        """
        self.limits.check(study)
        if (pair := self.device.keeper.peek(choice)) is None:
            return
        methods = study.settings.methods
        drafts = ", ".join(label(m.name) for m in methods if m.uses_draft)
        heads = ", ".join(label(m.name) for m in methods if m.uses_head)
        refuse(
            (
                pair.draft is None and drafts,
                "The pair in use has no draft model: choose another pair under Models in the "
                f"Compare tab, or untick {drafts}.",
            ),
            (
                pair.head is None and heads,
                f"The pair in use has no head: choose another draft for {heads}, or another pair "
                "under Models in the Compare tab.",
            ),
        )
        admit(pair, study)

    def run(
        self,
        study: Study,
        choice: PairChoice,
        stopped: threading.Event | None = None,
        earlier: Run | None = None,
    ) -> Generator[Event, None, None]:
        """Run a study on the device, and keep its run; one visitor at a time may call it.

        The finished part is kept, too, while it runs, when the visitor leaves and when it fails.

        Args:
            study: the study
            choice: the visitor's pair
            stopped: ends the study once it is set
            earlier: a run of draws that the study adds to

        Yields:
            the events of the study

        Raises:
            InputError: for a study that the limits or the pair refuse
        """
        self.limits.check(study)
        finished: Run | None = None
        due = 0.0
        try:
            with closing(onto(earlier, self.device.run(study, choice, stopped))) as events:
                for event in events:
                    if isinstance(event, Finished):
                        whole, began = event.at.lap or event.at.last_text, time.monotonic()
                        finished = replace(event.run, cancelled=not whole)
                        if began >= due or event.at.last_text:
                            event = replace(event, unkept=self._kept(Ended(finished)).unkept)
                            due = time.monotonic() + KEPT_AGAIN_AFTER * (time.monotonic() - began)
                    if isinstance(event, Ended):
                        finished = None
                        event = self._kept(event) if event.run.results else event
                    yield event
            # A borrowed GPU is given back at once, without a last event.
            if finished is not None:
                ended, finished = Ended(finished), None
                yield self._kept(ended)
        finally:
            if finished is not None:
                self._kept(Ended(finished))

    def _kept(self, event: Ended) -> Ended:
        """The event once its run is stored, or with the reason why that failed."""
        try:
            self.store.save(event.run)
        except InputError as error:
            return replace(event, unkept=str(error))
        except Exception as error:
            log.exception("a run was not kept")
            why = f"This run could not be kept ({type(error).__name__})"
            return replace(event, unkept=f"{why}; the server's log says more.")
        return event

    def loaded(self, choice: PairChoice) -> ModelPair:
        if (pair := self.device.keeper.peek(choice)) is None:
            raise InputError(f"{choice.title} is not loaded; press Load under Models first.")
        return pair

    def tokens(
        self, prompt: Any, settings: Mapping[str, Any], choice: PairChoice
    ) -> tuple[int, int | None] | None:
        """The length of a prompt; one that is empty or cannot be encoded has no tokens.

        Args:
            prompt: a study's prompt, as its `to_json` gives it
            settings: its settings, likewise
            choice: the visitor's pair

        Returns:
            the prompt's tokens and the pair's positions (None for no limit); None if the pair is
                not in memory

        Raises:
            InputError: if it has no chat template to apply, or its messages cannot be used
        """
        pair = self.device.keeper.peek(choice)
        if pair is None:
            return None
        return len(_encoded(pair, prompt, settings).ids), pair.positions

    def notes(self, prompt: Any, settings: Mapping[str, Any], choice: PairChoice) -> list[str]:
        """Sentences about tokens of a prompt that its writer may not expect; see `tokens`."""
        pair = self.device.keeper.peek(choice)
        if pair is None or pair.tokenizer is None:
            return []
        try:
            encoded = _encoded(pair, prompt, settings)
        except InputError:  # which is said in another place
            return []
        said = [prompt] if isinstance(prompt, str) else [m["content"] for m in prompt]
        names = dict.fromkeys(name for words in said for name in specials(words, pair.tokenizer))
        if not encoded.ids or not names:
            return list(encoded.notes)
        kind = "a special token" if len(names) == 1 else "special tokens"
        read = f"Your text has {' and '.join(names)}, which the tokenizer reads as {kind}."
        return [read, *encoded.notes]

    def chats(self, choice: PairChoice) -> bool:
        pair = self.device.keeper.peek(choice)
        return pair is not None and bool(getattr(pair.tokenizer, "chat_template", None))

    @contextmanager
    def stoppable(self, job: tuple[str | None, str]) -> Iterator[threading.Event]:
        """An event that `stop(job)` sets while the block runs."""
        stopped = self._stops[job] = threading.Event()
        try:
            yield stopped
        finally:
            if self._stops.get(job) is stopped:
                del self._stops[job]

    def stop(self, job: tuple[str | None, str]) -> None:
        if job in self._stops:
            self._stops[job].set()

    def ticket(self) -> str:
        """The number of one who waits for the device from now on."""
        self.newest = str(int(self.newest) + 1)
        self.quiet.set()
        return self.newest

    def leave(self, job: tuple[str | None, str]) -> None:
        """Another run is shown in the place of a job's: it ends, and shows nothing more."""
        if stopped := self._stops.pop(job, None):
            stopped.set()

    def in_view(self, stopped: threading.Event) -> bool:
        return stopped in self._stops.values()

    def open(self) -> None:
        """Load the first pair; if it is missing, the page says so when a visitor comes."""
        try:
            self.device.pair(self.first)
        except InputError as error:
            self.fault = str(error)


def _encoded(pair: ModelPair, prompt: Any, settings: Mapping[str, Any]) -> Encoded:
    """The prompt of a form, which may be empty or half a character."""
    if not prompt or (isinstance(prompt, str) and not is_text(prompt)):
        return Encoded([])
    words = Chat.of(prompt) if isinstance(prompt, list) else prompt
    template, system = settings.get("chat_template", False), settings.get("system", "")
    return encode_prompt(pair, words, template, system)
