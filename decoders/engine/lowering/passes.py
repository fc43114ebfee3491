"""A pass as one call of the compiled kernels (Lowered)."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import torch

from decoders.engine.attention.interface import Layered, Packing
from decoders.engine.kernels.codes import INTEGERS, PLACES
from decoders.engine.kernels.loading import kernels
from decoders.engine.lowering.lower import CannotLower, Lowering
from decoders.engine.lowering.rows import TOKENS, placed
from decoders.engine.memory.feeds import PackedInputs
from decoders.engine.recording.recorder import Step, Value

Keys = tuple[Sequence[torch.Tensor], ...]


class Cached(Protocol):
    """What has the keys and the values of each layer."""

    @property
    def keys(self) -> Sequence[torch.Tensor]: ...

    @property
    def values(self) -> Sequence[torch.Tensor]: ...


class Lowered:
    """A recorded pass that compiled kernels carry out in one call.

    Args:
        steps: the recording, for passes of any size
        answers: what it returns
        given: further inputs of the pass by name, each with how many numbers a token has in it

    Attributes:
        logits_alone: whether it returns logits and nothing else
        size: V

    Raises:
        CannotLower: if the kernels do not do all of it, or cannot be had
    """

    def __init__(
        self,
        steps: Sequence[Step],
        answers: Sequence[Value],
        given: Mapping[str, int] = MappingProxyType({}),
    ):
        found = kernels()
        if found is None:
            raise CannotLower("there are no kernels")
        self._run, self._passes = found.run, found.passes
        lowering = Lowering(steps, answers, given)
        self._kept = lowering.kept
        results = list(dict.fromkeys(rows.number for rows in lowering.answers))
        # Inputs lie where their tensors are, as answers do.
        outside = [*results, *lowering.given]
        layout = placed(lowering.instructions, lowering.widths, outside)
        self._lines = np.zeros((len(lowering.instructions), 1 + PLACES + INTEGERS), np.int64)
        self._reals = np.zeros((len(lowering.instructions), 2))
        for line, reals, one in zip(self._lines, self._reals, lowering.instructions, strict=True):
            places = [layout.places[number] for number in one.operands]
            line[0], line[1 : 1 + len(places)] = one.code, places
            if one.second is not None:
                line[PLACES - 1] = layout.places[one.second]
            line[PLACES] = layout.places[one.result]
            line[1 + PLACES : 1 + PLACES + len(one.integers)] = one.integers
            reals[: len(one.reals)] = one.reals
        self._width = layout.width
        every = {rows.number: rows for rows in lowering.answers}
        self._sizes = [(every[n].count == TOKENS, lowering.widths[n]) for n in results]
        self._order = [results.index(rows.number) for rows in lowering.answers]
        self._caches: tuple[Keys, np.ndarray] = (), np.empty((0, 3), np.int64)
        self.logits_alone = [each for each, _ in self._sizes] == [False] and not given
        self.size = self._sizes[0][1]

    def __call__(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        wanted: torch.Tensor,
        packing: Packing | Layered,
        *more: Any,
    ) -> tuple[torch.Tensor, ...]:
        *given, tokens, n_wanted = more
        packings = packing.packings if isinstance(packing, Layered) else (packing,)
        work = torch.empty(self._width * max(tokens, n_wanted))
        answers = [torch.empty(tokens if each else n_wanted, w) for each, w in self._sizes]
        self._run(
            self._lines,
            self._reals,
            work.data_ptr(),
            np.array([tensor.data_ptr() for tensor in (*answers, *given)]),
            input_ids.data_ptr(),
            position_ids.data_ptr(),
            wanted.data_ptr(),
            tokens,
            n_wanted,
            self._addresses(packing, packings),
            lines_of(packings),
        )
        return tuple(answers[i] for i in self._order)

    def passes(
        self,
        inputs: PackedInputs,
        logits: np.ndarray,
        found: tuple[np.ndarray, ...],
        tokens: np.ndarray,
        warpings: np.ndarray,
        numbers: np.ndarray,
        ends: np.ndarray,
    ) -> int:
        """Make a pass and those of chains after it, see `decoders.engine.kernels.passes`."""
        ids, positions, wanted, packing = inputs
        packings = packing.packings if isinstance(packing, Layered) else (packing,)
        n, n_wanted = ids.shape[1], len(wanted)
        work = np.empty(self._width * max(n, n_wanted), np.float32)
        return self._passes(
            self._lines, self._reals, work.ctypes.data, ids.data_ptr(), positions.data_ptr(),
            wanted.data_ptr(), n, n_wanted, logits, found, tokens,
            self._addresses(packing, packings), lines_of(packings), warpings, numbers, ends,
        )  # fmt: skip

    def _addresses(self, cached: Cached | Layered, packings: Sequence[Cached]) -> np.ndarray:
        """For each layer its keys' and values' addresses and its packing, (layers, 3)."""
        keys, found = self._caches
        if len(keys) == len(packings) and all(
            k is p.keys for k, p in zip(keys, packings, strict=True)
        ):
            return found
        places = (
            cached.places
            if isinstance(cached, Layered)
            else [(0, layer) for layer in range(len(cached.keys))]
        )
        found = np.array(
            [
                (packings[p].keys[i].data_ptr(), packings[p].values[i].data_ptr(), p)
                for p, i in places
            ]
        )
        self._caches = tuple(p.keys for p in packings), found
        return found


def lines_of(packings: Sequence[Packing]) -> np.ndarray:
    """For each packing the addresses and numbers that attention needs, (packings, 5)."""
    return np.array(
        [
            (
                p.rows.data_ptr(),
                p.segments.data_ptr(),
                len(p.segments),
                p.masks.data_ptr(),
                p.window,
            )
            for p in packings
        ]
    )
