"""The plan of a pass for attention: which tokens and cache rows belong to which request."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


class Part(NamedTuple):
    """One request in a pass: its tokens `start` to `stop`, and all its rows in use after the pass.

    Attributes:
        start: its first token
        stop: the token after its last
        bias: what is added to the scores, (tokens, rows), or None
        causal: whether the tokens have all the rows and each sees only those up to its own
        keys: the keys of the rows by layer, (1, K, rows, D)
        values: the values of the rows by layer, (1, K, rows, D)
    """

    start: int
    stop: int
    bias: Tensor | None
    causal: bool
    keys: Sequence[Tensor]
    values: Sequence[Tensor]


@dataclass(frozen=True, eq=False)
class Packing:
    """The assignment of the tokens of one pass to requests.

    It is not a tuple: hooks of accelerate, which move a layer's arguments to the layer's device,
    would take a tuple apart, and layers would write into copies of the arena.

    Attributes:
        rows: the arena row of each token's key and value, (tokens,)
        segments: for each request, on the CPU, (requests, 7): first token, token after the last,
            first arena row, rows in use before the pass, where its part of `masks` begins, where
            its part of `biases` begins (-1 for no part), and the first of its rows that its mask
            describes
        table: the same for kernels, (5, requests + 1), int32 on the device: first tokens and the
            end of the last; first arena rows; rows in use after the pass; starts in `masks`; first
            rows of masks
        masks: the masks (tokens, rows), flattened, bool. A token sees all rows before those of its
            mask, and the ones of the mask that are True. A chain that sees everything before it has
            no mask.
        biases: the same for attention request by request, made once for all layers: 0 or -inf to
            add to the scores, (tokens, rows), flattened. Single tokens and whole prompts have none.
        keys: the arena's keys by layer, (rows, K, D)
        values: the arena's values by layer, (rows, K, D)
        window: how many rows, its own included, a token of a chain sees; 0 for all. Masks
            themselves hide the rows outside of the window.
        parts: for attention request by request without a compiler, what all layers share; empty if
            there are kernels
        scratch: an arena row that no request has, or -1
    """

    rows: Tensor
    segments: Tensor
    table: Tensor
    masks: Tensor
    biases: Tensor
    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    window: int = 0
    parts: tuple[Part, ...] = ()
    scratch: int = -1


@dataclass(frozen=True, eq=False)
class Layered:
    """A pass whose layers follow different packings.

    Layers differ if they do not all see equally far back, or lie on several devices.

    Attributes:
        packings: the packings
        places: for each layer, its packing and its number in that packing
    """

    packings: tuple[Packing, ...]
    places: tuple[tuple[int, int], ...]


def of_layer(packing: Packing | Layered, layer: int) -> tuple[Packing, int]:
    """The packing that a layer follows, and the layer's number there."""
    if isinstance(packing, Layered):
        place, layer = packing.places[layer]
        packing = packing.packings[place]
    return packing, layer
