"""The passes of one model as programs (Programs), and those of a CPU's kernels (Program).

A program is made when it is first needed. A plain pass takes the place of one that has none.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from decoders.devices import device_of
from decoders.engine.attention.interface import Layered, Packing
from decoders.engine.fingerprint import TrialLog
from decoders.engine.kernels import ACTIVATIONS, INTEGERS, PLACES, Code
from decoders.engine.kernels.loading import kernels
from decoders.engine.lowering.lower import (
    TOKENS,
    CannotLower,
    Instruction,
    Lowering,
    placed,
)
from decoders.engine.pack import PackedInputs
from decoders.engine.protocols import Layers
from decoders.engine.recorder import (
    LONGEST,
    CannotRecord,
    Operation,
    Recorder,
    Value,
    in_general,
)
from decoders.engine.weights import FORMATS
from decoders.errors import first_line
from decoders.process import one_thread

INPUTS = "input_ids", "position_ids", "wanted", "packing"
# Tokens, and those of them that want logits, of the passes that a program is made from.
SIZES = (3, 2), (5, 2), (5, 3)
Keys = tuple[Sequence[torch.Tensor], ...]
# Takes INPUTS by name and `features`, Layers; returns logits (wanted, V) and for each layer hidden
# states (tokens, H).
Pass = Callable[..., tuple[torch.Tensor, ...]]


class Program:
    """A pass that the kernels of a CPU carry out in one call.

    Args:
        lowering: its instructions, for passes of any size

    Attributes:
        scan: what else looks through rows that it has made
        size: V

    Raises:
        CannotLower: if the kernels do not do all of it, or cannot be had
    """

    name = "kernels of this CPU"

    def __init__(self, lowering: Lowering):
        entries = kernels()
        if entries is None:
            raise CannotLower("there are no kernels")
        if lowering.dtype not in (torch.float32, torch.bfloat16):
            raise CannotLower("the kernels are for float32 and bfloat16")
        self.dtype = lowering.dtype
        self._run, self._passes = entries.run, entries.passes
        self._kept: list[Any] = []
        results = list(dict.fromkeys(rows.number for rows in lowering.answers))
        # Inputs lie where their tensors are, as answers do.
        outside = [*results, *lowering.given]
        at, self._width = placed(lowering.instructions, lowering.widths, outside)
        self._lines = np.zeros((len(lowering.instructions), 1 + PLACES + INTEGERS), np.int64)
        self._reals = np.zeros((len(lowering.instructions), 2))
        for line, reals, one in zip(self._lines, self._reals, lowering.instructions, strict=True):
            places = [at[number] for number in one.operands]
            line[0], line[1 : 1 + len(places)] = one.code, places
            if one.second is not None:
                line[PLACES - 1] = at[one.second]
            line[PLACES] = at[one.result]
            integers, factors = self._numbers(one)
            line[1 + PLACES : 1 + PLACES + len(integers)] = integers
            line[-1] = self._roundings(one)
            reals[: len(factors)] = factors
        every = {rows.number: rows for rows in lowering.answers}
        self._sizes = [(every[n].count == TOKENS, lowering.widths[n]) for n in results]
        self._order = [results.index(rows.number) for rows in lowering.answers]
        self._caches: tuple[Keys, np.ndarray] = (), np.empty((0, 3), np.int64)
        self.scan, self.size = entries.scan, self._sizes[0][1]

    def _numbers(self, one: Instruction) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """The whole and the real numbers of an instruction, as Code has them."""
        if one.code == Code.PRODUCT:
            (part,) = one.weights
            copy = part.layer.for_kernels()
            if copy is None or part.layer.weight.dtype != self.dtype:
                raise CannotLower("kernels cannot read its weights: float16 does not hold them")
            if part.begin % copy.block:
                raise CannotLower("a part of a product begins within a block")
            weights, bias, form = copy.places(part.begin)
            self._kept.append(copy)
            size, width, wanted = one.integers
            return (weights, size, width, bias, wanted, form), (copy.factor,)
        if one.code == Code.EMBED:
            table, factor = one.weights
            if table.dtype != self.dtype:
                raise CannotLower("its table has another number type")
            self._kept.append(table)
            place, form = table.data_ptr(), FORMATS[table.dtype]
            return (place, *one.integers, form), (1.0 if factor is None else float(factor),)
        if one.code == Code.GATED:
            return (*one.integers, ACTIVATIONS.index(one.how)), one.reals
        vectors = [None if v is None else v.detach().float().contiguous() for v in one.weights]
        self._kept += vectors
        addresses = tuple(0 if vector is None else vector.data_ptr() for vector in vectors)
        if one.code == Code.ATTEND:
            return (*one.integers, *addresses), one.reals
        return (*addresses, *one.integers), one.reals

    def _roundings(self, one: Instruction) -> int:
        """When results of an instruction are rounded, as Code has it."""
        if self.dtype == torch.float32 or (one.code, one.how) == (Code.ANGLES, "late"):
            return 0
        return 1 if one.how == "late" else 2

    def __call__(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        wanted: torch.Tensor,
        packing: Packing | Layered,
        *given: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        tokens, n_wanted = input_ids.shape[1], len(wanted)
        packings = packings_of(packing)
        work = np.empty(self._width * max(tokens, n_wanted), np.float32)
        answers = [
            torch.empty(tokens if each else n_wanted, w, dtype=torch.float32)
            for each, w in self._sizes
        ]
        inputs = [tensor.float() for tensor in given]
        self._run(
            self._lines,
            self._reals,
            work.ctypes.data,
            np.array([tensor.data_ptr() for tensor in (*answers, *inputs)]),
            input_ids.data_ptr(),
            position_ids.data_ptr(),
            wanted.data_ptr(),
            tokens,
            n_wanted,
            self._addresses(packing, packings),
            lines_of(packings),
        )
        with one_thread():
            return tuple(answers[i].to(self.dtype) for i in self._order)

    def passes(
        self,
        inputs: PackedInputs,
        logits: np.ndarray,
        tops: tuple[np.ndarray, ...],
        tokens: np.ndarray,
        warpings: np.ndarray,
        numbers: np.ndarray,
        ends: np.ndarray,
        *head: np.ndarray,
    ) -> int:
        """Make a pass and those of chains after it, see `decoders.engine.kernels.program`."""
        ids, positions, wanted, packing = inputs
        packings = packings_of(packing)
        n, n_wanted = ids.shape[1], len(wanted)
        work = np.empty(self._width * max(n, n_wanted), np.float32)
        return self._passes(
            self._lines, self._reals, work.ctypes.data, ids.data_ptr(), positions.data_ptr(),
            wanted.data_ptr(), n, n_wanted, logits, tops, tokens,
            self._addresses(packing, packings), lines_of(packings), warpings, numbers, ends, *head,
        )  # fmt: skip

    def _addresses(self, cached: Packing | Layered, packings: Sequence[Packing]) -> np.ndarray:
        """For each layer its keys' and values' addresses and its packing, (layers, 3)."""
        keys, addresses = self._caches
        if len(keys) == len(packings) and all(
            k is p.keys for k, p in zip(keys, packings, strict=True)
        ):
            return addresses
        places = (
            cached.places
            if isinstance(cached, Layered)
            else [(0, layer) for layer in range(len(cached.keys))]
        )
        addresses = np.array(
            [
                (packings[p].keys[i].data_ptr(), packings[p].values[i].data_ptr(), p)
                for p, i in places
            ]
        )
        self._caches = tuple(p.keys for p in packings), addresses
        return addresses


def packings_of(packing: Packing | Layered) -> tuple[Packing, ...]:
    return packing.packings if isinstance(packing, Layered) else (packing,)


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


class Programs:
    """The passes of one model: programs, or plain passes if it has none.

    Args:
        plain: the pass itself
        example: makes the INPUTS of a pass, given its number of tokens and how many of them want
            logits
        name: the model's name, for the log
        most: the most tokens that the model can see, or None
        given: further inputs of a pass by name, which follow the INPUTS in an example, each with
            how many numbers a token has in it
        trials: of programs that have agreed before, until weights change
        carrier: makes what carries out the instructions, with a `name` for people, or raises
            CannotLower; by default a CPU's kernels
        instead: what passes do that have no program, for the log

    Attributes:
        why: why there is no program, so that all passes are plain; "" while there is one
    """

    def __init__(
        self,
        plain: Pass,
        example: Callable[[int, int], Sequence],
        name: str,
        most: int | None,
        given: Mapping[str, int] | None = None,
        trials: TrialLog | None = None,
        carrier: Callable[[Lowering], Any] = Program,
        instead: str = "run module by module",
    ):
        self._trials, self.carrier, self._instead = trials, carrier, instead
        self.plain, self.example, self.name, self.given = plain, example, name, given or {}
        self.inputs = (*INPUTS, *self.given)
        self._most = LONGEST if most is None else min(most, LONGEST)
        self._made: dict[Layers, Any] = {}
        self._making = threading.Lock()
        self.why = ""

    def __call__(self, features: Layers = (), **inputs: Any) -> tuple[torch.Tensor, ...]:
        """A pass, whose inputs are given by name."""
        tokens = inputs["input_ids"].shape[1]
        if self.carrier is Program:
            segments = packings_of(inputs["packing"])[0].segments
            tokens = int((segments[:, 1] - segments[:, 0]).max())
        program = self.serving(tokens, features)
        if program is None:
            return self.plain(**inputs, features=features)
        return program(*(inputs[name] for name in self.inputs))

    def serving(self, tokens: int, features: Layers = ()) -> Any:
        """The program that carries out a pass of so many tokens, if one does.

        On a CPU these are the tokens of the longest request: by another way a token has other bits,
        and what it has must not depend on how many others share its pass. Several threads share a
        long pass better than the kernels do, which take 192 tokens of a request, divided by the
        number of threads.
        """
        threads = torch.get_num_threads() if self.carrier is Program else 1
        if tokens > self._most or tokens * threads > LONGEST:
            return None
        with self._making:
            if features not in self._made:
                self._made[features] = self._make(features)
            return self._made[features]

    def forget(self) -> None:
        """Forget the programs, which hold views and copies of weights that have changed."""
        with self._making:
            self._made, self.why, self._trials = {}, "", None

    def _example(self, tokens: int, wanted: int) -> dict[str, Any]:
        return dict(zip(self.inputs, self.example(tokens, wanted), strict=True))

    def _make(self, features: Layers) -> Any:
        try:
            # Preparations that a model or a layer makes in its first pass are not recorded.
            self.plain(**self._example(3, 1), features=features)
            (cached,) = packings_of(self.example(1, 1)[3])[:1]
            keys = cached.keys[0]
            lowering = Lowering(*self._recording(features), self.given, keys.dtype, keys.device)
            program = self.carrier(lowering)
            trial = f"{program.name} agree with plain passes, features {features}"
            if self._trials is None or not self._trials.passed(trial):
                for tokens in (1, 2, self._most):  # at both ends of its sizes
                    self._must_agree(program, tokens, features)
                if self._trials is not None:
                    self._trials.note(trial)
            return program
        except CannotLower as error:  # as of many architectures
            why, level = str(error), logging.INFO
        except Exception as error:  # a model's code can do anything that a recorder does not expect
            why, level = first_line(error), logging.WARNING
        runs_plainly(self.name, why, level, self._instead)
        if not features:
            self.why = why
        return None

    def _recording(self, features: Layers) -> tuple[list[Operation], tuple[Value, ...]]:
        """A recording for passes of any size, and what it returns."""
        notes = [self._noted(size, features) for size in SIZES]
        return in_general([steps for steps, _ in notes], SIZES), notes[0][1]

    def _noted(
        self, size: tuple[int, int], features: Layers
    ) -> tuple[list[Operation], tuple[Value, ...]]:
        inputs = self._example(*size)
        with Recorder(inputs) as recorder:
            outputs = self.plain(**inputs, features=features)
        return recorder.steps, tuple(map(recorder.value_of, outputs))

    def _must_agree(self, program: Any, tokens: int, features: Layers) -> None:
        """Raise CannotRecord unless a plain pass gives the same, apart from the order of sums."""
        inputs = self._example(tokens, 1 + tokens // 3)
        answers = program(*inputs.values()), self.plain(**inputs, features=features)
        for ours, plain in zip(*answers, strict=True):
            if device_of(plain.device).on_host and plain.dtype.itemsize > 2:
                allowed = 100 * torch.finfo(plain.dtype).eps * plain[plain.isfinite()].abs().max()
                if torch.allclose(ours, plain, rtol=0, atol=float(allowed), equal_nan=True):
                    continue
            elif nearly(ours, plain):
                continue
            raise CannotRecord("its program gave other numbers")


def nearly(ours: torch.Tensor, plain: torch.Tensor) -> bool:
    """Whether two passes agree but for rounding; they may attend in different ways."""
    finite = plain.isfinite()
    error = (ours.double() - plain.double())[finite].norm() / plain.double()[finite].norm()
    return bool(error <= (0.05 if plain.dtype.itemsize == 2 else 1e-3))


def runs_plainly(
    name: str, why: str, level: int = logging.WARNING, instead: str = "run module by module"
) -> None:
    """Say in the log that passes run module by module.

    Args:
        name: the model's name
        why: the reason
        level: of the record
        instead: what passes do
    """
    logging.getLogger("decoders").log(
        level, "The passes of the %s %s, which takes longer (%s).", name, instead, why
    )
