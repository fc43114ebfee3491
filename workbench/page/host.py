"""What the page's handlers share: the pair in memory, the past runs, the limits of this place, and who asked to stop."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from decoders import InputError, ModelPair
from workbench.measuring.device import steadily
from workbench.measuring.session import Ended, SessionEvent, compare, encode_prompt
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice
from workbench.runs.store import RunStore
from workbench.studies.limits import Limits, on_device, zero_gpu
from workbench.studies.settings import Settings


@dataclass
class Host:
    limits: Limits = field(default_factory=Limits.from_environment)
    store: RunStore = field(default_factory=RunStore)
    pairs: PairKeeper = field(default_factory=PairKeeper)
    fault: str | None = None  # why the embedded pair is not there

    def __post_init__(self) -> None:
        self._stops: dict[str, threading.Event] = {}
        self._compare = on_device(self._compare_here)
        self.thread = ThreadPoolExecutor(1, "device")  # all decoding happens in it

    def admit(self, prompt: str, settings: Settings, choice: PairChoice) -> None:
        """Raises InputError, before any work, for a comparison that cannot be run; of a pair not in memory its fit is seen later."""
        self.limits.check(settings.max_new_tokens, settings.repeats)
        if choice == self.pairs.in_use:
            compare(self.pairs.get(choice), prompt, settings).close()

    def decode(
        self, prompt: str, settings: Settings, choice: PairChoice, stopped: threading.Event | None = None
    ) -> Iterator[SessionEvent]:
        """The events of one comparison; its run is kept. To be called by one visitor at a time: it uses the device."""
        self.admit(prompt, settings, choice)
        # An event does not cross into ZeroGPU's process; there closing the generator ends the job.
        cancel = None if zero_gpu() else stopped
        with closing(steadily(self.thread, lambda: self._compare(prompt, settings, choice, cancel))) as events:
            for event in events:
                if isinstance(event, Ended) and event.run.results:
                    self.store.save(event.run)
                yield event
                if zero_gpu() and stopped and stopped.is_set():
                    return

    def pair(self, choice: PairChoice) -> ModelPair:
        """The chosen pair, loaded in the thread that will decode with it."""
        return self.thread.submit(self.pairs.get, choice).result()

    def _compare_here(
        self, prompt: str, settings: Settings, choice: PairChoice, cancel: threading.Event | None
    ) -> Iterator[SessionEvent]:
        yield from compare(self.pairs.get(choice), prompt, settings, cancel=cancel)

    def tokens(self, prompt: str, chat_template: bool, choice: PairChoice) -> tuple[int, int | None] | None:
        """The prompt's tokens and the pair's positions (None for no limit); None where the pair is not in memory."""
        if choice != self.pairs.in_use:
            return None
        pair = self.pairs.get(choice)
        limits = [model.positions for model in pair.packed.values() if model.positions is not None]
        count = len(encode_prompt(pair, prompt, chat_template)) if prompt else 0
        return count, min(limits, default=None)

    def has_chat_template(self, choice: PairChoice) -> bool:
        return choice == self.pairs.in_use and bool(getattr(self.pairs.get(choice).tokenizer, "chat_template", None))

    @contextmanager
    def stoppable(self, visitor: str) -> Iterator[threading.Event]:
        """The event that `stop(visitor)` sets, while the block runs."""
        stopped = self._stops[visitor] = threading.Event()
        try:
            yield stopped
        finally:
            self._stops.pop(visitor, None)

    def stop(self, visitor: str) -> None:
        if visitor in self._stops:
            self._stops[visitor].set()

    def open(self) -> None:
        """Load the embedded pair; where it is missing the page says so when a visitor comes."""
        try:
            self.pair(PairChoice())
        except InputError as error:
            self.fault = str(error)
