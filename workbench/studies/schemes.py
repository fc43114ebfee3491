"""Schemes: how the requests of a batch share passes and caches (ems-sd.txt §3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scheme:
    """padding   what the engine pads, in the words of `decoders.generate`
    static    whether a batch is decoded to its end before the next one begins; otherwise the next request takes a finished one's place at once
    """

    label: str
    help: str
    padding: str
    static: bool = True


SCHEMES = {
    "vanilla": Scheme("padded (usual)", "pads inputs and caches to the longest of the batch, as a framework with aligned tensors must", "both"),
    "unpadded_kv": Scheme("unpadded cache", "every request's cache has its own length; inputs are padded", "inputs"),
    "unpadded_inputs": Scheme("unpadded inputs", "the tokens of all requests are laid end to end; caches are padded", "kv"),
    "unpadded": Scheme("no padding", "neither is padded (EMS-SD)", "none"),
    "dynamic": Scheme("dynamic batch", "neither is padded, and a finished request's place goes to the next one at once", "none", False),
}  # fmt: skip
ALONE = "unpadded"  # the only scheme of a batch of one, which has nothing to pad and no place to hand on
BASELINE = "greedy"  # the decoder that all others are compared with
BASELINES = {
    ALONE: "greedy",
    "dynamic": "greedy, dynamic",
}  # what schemes are compared with, in words: see `baseline_scheme`
PADDED = "vanilla"  # the scheme that all others are compared with


def schemes_at(size: int, schemes: Sequence[str]) -> list[str]:
    """The schemes that differ at this batch size."""
    return list(schemes) if size > 1 else [ALONE]


def baseline_scheme(scheme: str) -> str:
    """Greedy feeds one token per request, so all static schemes are the same for it; dynamic batches are compared with dynamic ones."""
    return ALONE if SCHEMES[scheme].static else scheme


def scheme_label(decoder: str, size: int, scheme: str) -> str:
    """The name of a scheme. At batch size 1 there is only one, and for the baseline all static ones are the same."""
    if size == 1:
        return "alone"
    if decoder == BASELINE:
        return "static" if SCHEMES[scheme].static else "dynamic"
    return SCHEMES[scheme].label


def batches(items: Sequence[T], size: int) -> list[list[T]]:
    """The items in batches of exactly `size`: the last one is filled up from the start."""
    starts = range(0, len(items), size)
    return [list(islice(cycle(items), start, start + size)) for start in starts]
