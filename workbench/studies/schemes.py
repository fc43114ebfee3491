"""Schemes: ways in which the requests of a batch share passes and caches.

Source:
    EMS-SD (arXiv 2405.07542), section 3.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TypeVar

T = TypeVar("T")
LARGEST_BATCH = 1024
MEGABYTE = 1e6


@dataclass(frozen=True, slots=True)
class Scheme:
    """A way to share a batch.

    Attributes:
        label: its name on the page
        help: one line for a user
        padding: the `padding` option of `decoders.generate`
        static: whether a batch is decoded to its end before the next one begins; otherwise the next
            request takes a finished one's place at once
    """

    label: str
    help: str
    padding: str
    static: bool = True


SCHEMES = {
    "vanilla": Scheme(
        "padded (usual)",
        "pads inputs and caches to the longest of the batch, as a framework with aligned tensors "
        "must",
        "both",
    ),
    "unpadded_kv": Scheme(
        "unpadded cache",
        "every request's cache has its own length; inputs are padded",
        "inputs",
    ),
    "unpadded_inputs": Scheme(
        "unpadded inputs",
        "the tokens of all requests are laid end to end; caches are padded",
        "kv",
    ),
    "unpadded": Scheme("no padding", "neither is padded (EMS-SD)", "none"),
    "dynamic": Scheme(
        "dynamic batch",
        "neither is padded, and the next request takes a finished one's place at once",
        "none",
        False,
    ),
}
# The only scheme of a batch of one, which has nothing to pad and no place to hand on.
ALONE = "unpadded"
BASELINE = "greedy"  # the decoder that all others are compared with
# The baseline of each kind of batch, in words: see `baseline_scheme`.
BASELINES = {ALONE: "greedy", "dynamic": "greedy, dynamic"}
PADDED = "vanilla"  # the scheme that all others are compared with


def schemes_at(size: int, schemes: Sequence[str]) -> list[str]:
    """The schemes that differ at this batch size."""
    return list(schemes) if size > 1 else [ALONE]


def baseline_scheme(scheme: str) -> str:
    """The scheme of the greedy run that a scheme is compared with.

    Greedy feeds one token per request, so all static schemes are the same for it. Dynamic batches
    are compared with dynamic ones.
    """
    return ALONE if SCHEMES[scheme].static else scheme


def scheme_label(decoder: str, size: int, scheme: str) -> str:
    """The name of a scheme.

    At batch size 1 there is only one; for the baseline, all static ones are the same.

    Args:
        scheme: a name of `SCHEMES`
    """
    if size == 1:
        return "alone"
    if decoder == BASELINE:
        return "static" if SCHEMES[scheme].static else "dynamic"
    return SCHEMES[scheme].label


def batches(items: Sequence[T], size: int) -> list[list[T]]:
    """The items in batches of exactly `size`: the last one is filled up from the start."""
    return [list(islice(cycle(items), start, start + size)) for start in range(0, len(items), size)]


def in_turn(items: Sequence[T], turn: int) -> Sequence[T]:
    """The items, in every second turn backwards.

    So a machine that gets slower or faster favours none of them.
    """
    return items[::-1] if turn % 2 else items


def least_budget(need: int) -> float:
    """The smallest memory budget in MB, in steps of a hundredth, that holds `need` bytes."""
    return math.ceil(need / MEGABYTE * 100) / 100
