"""The model pair in memory: which one, what else would fit, and how another takes its place."""

import gc
import threading
from collections.abc import Iterator

import torch

from decoders import ModelPair, default_dtype
from workbench.models.load import load
from workbench.models.memory import fits, shown_bytes
from workbench.models.presets import EMBEDDED, PAIRS, PairChoice


class PairKeeper:
    """Keeps one pair loaded. Visitors may choose different ones; the device's queue serves one visitor at a time.

    custom_allowed   whether pairs outside the presets may be loaded
    """

    def __init__(self, custom_allowed: bool = True) -> None:
        self._custom_allowed = custom_allowed
        self._loading = threading.Lock()
        self._loaded: tuple[PairChoice, ModelPair] | None = None

    def get(self, choice: PairChoice) -> ModelPair:
        """The chosen pair, loaded if another is in memory. Raises InputError with the reason if it cannot be used; the one in memory
        then stays."""
        with self._loading:
            if self._loaded is None or self._loaded[0] != choice:
                self._loaded = choice, load(choice, self._custom_allowed)
                gc.collect()
            return self._loaded[1]

    def peek(self, choice: PairChoice) -> ModelPair | None:
        """The chosen pair if it is in memory; nothing is loaded, and nobody waits for one that is being loaded."""
        loaded = self._loaded
        return loaded[1] if loaded is not None and loaded[0] == choice else None


def devices() -> list[str]:
    """What models can be put on, the best first."""
    return [*(f"cuda:{i}" for i in range(torch.cuda.device_count())), "cpu"]


def fitting() -> Iterator[tuple[str, str]]:
    """(label, name) of each preset whose weights fit on the best device; the label says how much they take. The embedded
    pair always fits."""
    device = torch.device(devices()[0])
    for name, pair in PAIRS.items():
        size = pair.weight_bytes(default_dtype(device))
        if pair is EMBEDDED or fits(size, device):
            yield (f"{name}, {shown_bytes(size)}" if size else name), name
