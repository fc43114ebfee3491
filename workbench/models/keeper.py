"""The model pair in memory: which one, what else would fit, and how another takes its place."""

import gc
import threading
from collections.abc import Iterator

import torch

from decoders import ModelPair
from workbench.models.load import load
from workbench.models.memory import default_dtype, fits, shown_bytes
from workbench.models.presets import EMBEDDED, PAIRS, PairChoice


class PairKeeper:
    """Keeps one pair loaded. Visitors may choose different ones; the device's queue lets one at a time ask for its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pair: ModelPair | None = None
        self.in_use: PairChoice | None = None

    def get(self, choice: PairChoice) -> ModelPair:
        """The chosen pair, loaded if another is in memory. Raises InputError with the reason where it cannot be used; the one
        in memory then stays."""
        with self._lock:
            if choice != self.in_use:
                self._pair, self.in_use = load(choice), choice
                gc.collect()
            return self._pair


def devices() -> list[str]:
    """What models can be put on, the best first."""
    return [*(f"cuda:{i}" for i in range(torch.cuda.device_count())), "cpu"]


def fitting() -> Iterator[tuple[str, str]]:
    """(label, name) of each preset whose weights fit on the best device; the label says what they take. The embedded pair always
    does."""
    device = torch.device(devices()[0])
    for name, pair in PAIRS.items():
        size = pair.weight_bytes(default_dtype(device))
        if pair is EMBEDDED or fits(size, device):
            yield (f"{name}, {shown_bytes(size)}" if size else name), name
