"""The model pair in memory: which one, what else would fit, and how another takes its place."""

import gc
import threading
from collections.abc import Iterator

import torch

from decoders import ModelPair, default_dtype
from workbench.models.load import load
from workbench.models.memory import available_bytes, fits, shown_bytes
from workbench.models.presets import EMBEDDED, PAIRS, PairChoice, PairPreset

DOES_NOT_FIT = "does not fit"  # in the label of such a preset, which is shown grey


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
                before, self._loaded = self._loaded, (choice, load(choice, self._custom_allowed))
                if before:  # what it held goes now, not when Python next looks for rings of references
                    del before
                    gc.collect()
            return self._loaded[1]

    def peek(self, choice: PairChoice) -> ModelPair | None:
        """The chosen pair if it is in memory; nothing is loaded, and nobody waits for one that is being loaded."""
        loaded = self._loaded
        return loaded[1] if loaded is not None and loaded[0] == choice else None


def devices() -> list[str]:
    """What models can be put on, the best first."""
    return [*(f"cuda:{i}" for i in range(torch.cuda.device_count())), "cpu"]


def offered() -> Iterator[tuple[str, str]]:
    """(label, name) of each preset. The label says how much memory its weights need on the best device: in the dtype that "auto" means
    there if they fit so, else in half precision, or that they do not fit."""
    device = torch.device(devices()[0])
    for name, pair in PAIRS.items():
        label = name if pair is EMBEDDED else f"{name}: {_need(pair, device)}"
        yield label, name


def _need(pair: PairPreset, device: torch.device) -> str:
    usual = default_dtype(device)
    for dtype in dict.fromkeys([usual, torch.bfloat16]):
        size, name = pair.weight_bytes(dtype), str(dtype).removeprefix("torch.")
        if fits(size, device):
            return f"{shown_bytes(size)} in {name}" + ("" if dtype == usual else f", choose dtype {name}")
    return f"{DOES_NOT_FIT}, {shown_bytes(size)} in {name} and {shown_bytes(available_bytes(device) or 0)} free"
