"""The model pair in memory, the presets that fit, and how another pair takes its place."""

import gc
import threading
from collections.abc import Iterator

import torch

from decoders import InputError, ModelPair, default_dtype
from decoders.devices import all_devices
from workbench.models.load import load
from workbench.models.memory import available_bytes, fits, shown_bytes
from workbench.models.presets import EMBEDDED, PAIRS, PairChoice, PairPreset

DOES_NOT_FIT = "does not fit"  # in the label of a preset that does not; it is shown grey


class PairError(InputError):
    """A pair that cannot be used; its message is the reason."""


class PairKeeper:
    """Keeps one pair loaded.

    Visitors may choose different ones; the device's queue serves one visitor at a time.

    Args:
        custom_allowed: whether pairs outside the presets may be loaded
    """

    def __init__(self, custom_allowed: bool = True) -> None:
        self._custom_allowed = custom_allowed
        self._loading = threading.Lock()
        self._loaded: tuple[PairChoice, ModelPair] | None = None

    def get(self, choice: PairChoice) -> ModelPair:
        """The chosen pair, loaded if another is in memory.

        Raises:
            PairError: with the reason, if it cannot be used; the one in memory then stays
        """
        with self._loading:
            if self._loaded is None or self._loaded[0] != choice:
                before, self._loaded = self._loaded, (choice, self._load(choice))
                # Its memory is freed now, not when Python next looks for rings of references.
                if before:
                    del before
                    gc.collect()
            return self._loaded[1]

    def _load(self, choice: PairChoice) -> ModelPair:
        try:
            return load(choice, self._custom_allowed)
        except InputError as error:
            raise PairError(str(error)) from error

    def peek(self, choice: PairChoice) -> ModelPair | None:
        """The chosen pair if it is in memory.

        Nothing is loaded, and the call does not wait for a pair that is being loaded.
        """
        loaded = self._loaded
        return loaded[1] if loaded is not None and loaded[0] == choice else None


def offered() -> Iterator[tuple[str, str]]:
    """(label, name) of each preset.

    The label says how much memory its weights need on the best device: in the dtype that "auto"
    means there if they fit, else in half precision; or that they do not fit.
    """
    device = torch.device(all_devices()[0])
    for name, pair in PAIRS.items():
        label = name if pair is EMBEDDED else f"{name}: {_need(pair, device)}"
        yield label, name


def _need(pair: PairPreset, device: torch.device) -> str:
    usual = default_dtype(device)
    for dtype in dict.fromkeys([usual, torch.bfloat16]):
        size, name = pair.weight_bytes(dtype), str(dtype).removeprefix("torch.")
        if fits(size, device):
            return f"{shown_bytes(size)} in {name}" + (
                "" if dtype == usual else f", choose dtype {name}"
            )
    return (
        f"{DOES_NOT_FIT}, {shown_bytes(size)} in {name} and "
        f"{shown_bytes(available_bytes(device) or 0)} free"
    )
