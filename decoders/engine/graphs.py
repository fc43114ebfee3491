"""Passes over fixed buffers, recorded once for each shape as CUDA graphs and replayed: seven small copies and one launch a pass.

A graph freezes addresses and Python numbers. So a pass is copied into buffers of its shape, filled up with tokens that belong to no
request and write to the arena's scratch row; and its attention is the one kernel that takes everything it needs from the buffers.
Tested with a stand-in for graphs on a CPU, not on a device; `load_pair(passes="graphs")` asks for it.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from decoders.engine.attention import Packing
from decoders.engine.recorded import CannotRecord
from decoders.engine.replay import Pass, stamps_of
from decoders.errors import first_line

log = logging.getLogger("decoders")

TOKENS = REQUESTS = 1, 2, 4, 8, 16, 32, 64  # sizes that passes are filled up to; larger ones run as they are
MASKS = 2**16  # numbers in all masks of a pass
LONGEST_TEXT = 2**24  # rows
Run = Callable[[], Tensor]


def cuda_graph(run: Run) -> tuple[Callable[[], None], Tensor]:
    """What repeats `run` over the same memory, and the tensor that it then writes its answer to."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        run()  # kernels are compiled and workspaces made before a capture
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        answer = run()
    return graph.replay, answer


class Shape(NamedTuple):
    tokens: int
    requests: int

    @classmethod
    def of(cls, inputs: Tensor, packing: Packing) -> "Shape | None":
        """The smallest that holds a pass; None if none does, or if its arena has no scratch row."""
        if packing.scratch < 0:
            return None
        needed = inputs.shape[1], packing.table.shape[1] - 1
        found = [next((n for n in sizes if n >= x), None) for x, sizes in zip(needed, (TOKENS, REQUESTS), strict=True)]
        tokens, requests = found
        return None if tokens is None or requests is None or len(packing.masks) > MASKS else cls(tokens, requests)


class Graph:
    """A recorded pass of one shape over one arena."""

    def __init__(self, shape: Shape, plain: Pass, packing: Packing, record: Callable[[Run], tuple]):
        device, (tokens, requests) = packing.rows.device, shape
        self.shape, self.keys, self.scratch = shape, packing.keys, packing.scratch
        self.indices = torch.zeros(4, tokens, dtype=torch.long, device=device)  # ids, positions, rows, wanted
        self.indices[2] = self.scratch
        self.table = torch.zeros(5, requests + 1, dtype=torch.int32, device=device)
        self.masks = torch.zeros(MASKS, dtype=torch.bool, device=device)
        ids, positions, rows, wanted = self.indices
        # On the host, where the kernel only looks for how many requests there are and how long they and their texts can be.
        segments = torch.tensor([[0, tokens, 0, LONGEST_TEXT, 0, -1, 0]] * requests)
        nothing = torch.zeros(2, dtype=packing.biases.dtype, device=device)
        fixed = Packing(rows, segments, self.table, self.masks, nothing, packing.keys, packing.values, packing.window)
        self.replay, self.answer = record(
            lambda: plain(input_ids=ids[None], position_ids=positions[None], wanted=wanted, packing=fixed)
        )

    def run(self, input_ids: Tensor, position_ids: Tensor, wanted: Tensor, packing: Packing) -> Tensor:
        """The logits of a pass, in memory of their own: the next replay overwrites the graph's."""
        tokens, requests = self.shape
        for line, given, filler in zip(
            self.indices,
            (input_ids[0], position_ids[0], packing.rows, wanted),
            (0, 0, self.scratch, 0),
            strict=True,
        ):
            line.copy_(pad(given, (0, tokens - len(given)), value=filler))
        # Requests that there are not begin and end after the last token.
        table = packing.table
        self.table.copy_(torch.cat([table, table[:, -1:].expand(-1, requests + 1 - table.shape[1])], 1))
        self.masks[: len(packing.masks)].copy_(packing.masks)
        self.replay()
        return self.answer[: len(wanted)].clone()


def check(replayed: Tensor, plain: Tensor) -> None:
    """Raise CannotRecord unless two passes gave the same logits, but for rounding: they may attend in different ways."""
    finite = plain.isfinite()
    error = (replayed.double() - plain.double())[finite].norm() / plain.double()[finite].norm()
    if not error <= (0.05 if plain.dtype.itemsize == 2 else 1e-3):
        raise CannotRecord("a replay gave other logits")


class Graphs:
    """Passes replayed from graphs, as `decoders.engine.replay.Recorded` replays them from lists of operators.

    plain   the pass, run as it is;   weights  the weights as they are now: graphs are made again when they change
    name    of the model, for the warning if it cannot be recorded
    record  makes a graph of a function without arguments: what replays it, and its answer
    A shape's first pass over an arena makes its graph, and is compared with the plain pass. One pass at a time uses the buffers.
    """

    def __init__(
        self,
        plain: Pass,
        weights: Callable[[], Sequence[Tensor]],
        name: str,
        record: Callable[[Run], tuple[Callable[[], None], Tensor]] = cuda_graph,
    ):
        self.plain, self.weights, self.name, self.record = plain, weights, name, record
        self._graphs: dict[tuple, Graph] = {}
        self._stamps: tuple = ()
        self._running = threading.Lock()
        self.failed = False

    def keep(self, arenas: Sequence[list[Tensor]]) -> None:
        """Drop the graphs over other arenas than those with these keys: they would keep memory that nobody uses."""
        with self._running:
            self._graphs = {k: g for k, g in self._graphs.items() if any(g.keys is keys for keys in arenas)}

    def __call__(self, input_ids: Tensor, position_ids: Tensor, wanted: Tensor, packing: Packing) -> Tensor:
        inputs: dict[str, Any] = {
            "input_ids": input_ids,
            "position_ids": position_ids,
            "wanted": wanted,
            "packing": packing,
        }
        simple = isinstance(packing, Packing)  # windows in some layers alone are not recorded
        shape = Shape.of(input_ids, packing) if simple and not self.failed else None
        if shape is None or len(wanted) > shape.tokens:
            return self.plain(**inputs)
        key = shape, id(packing.keys)  # an arena that grows names its layers anew
        with self._running:
            if (stamps := stamps_of(self.weights())) != self._stamps:
                self._graphs, self._stamps = {}, stamps
            if key in self._graphs:
                return self._graphs[key].run(**inputs)
            expected = self.plain(**inputs)
            try:
                graph = Graph(shape, self.plain, packing, self.record)
                check(graph.run(**inputs), expected)
            except Exception as error:  # of a driver, or foreign code that a capture refuses
                self.failed, self._graphs = True, {}
                reason = str(error) if isinstance(error, CannotRecord) else first_line(error)
                log.warning("The passes of the %s are not recorded (%s); they take longer.", self.name, reason)
                return expected
            self._graphs[key] = graph
            return expected
