"""Passes over fixed buffers, recorded once for each shape as CUDA graphs and replayed.

A replay is seven small copies and one launch. A graph freezes addresses and Python numbers. So a
pass is copied into buffers of its shape, which are filled up with tokens that belong to no request
and write to the arena's scratch row, and its attention is the one kernel that reads everything from
the buffers.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.nn.functional import pad

from decoders.engine.attention.interface import Packing
from decoders.engine.lowering.program import Pass, Programs, nearly, runs_plainly
from decoders.engine.protocols import Layers
from decoders.engine.recorder import CannotRecord
from decoders.errors import first_line

# The sizes to which passes are filled up; larger passes run plainly.
REQUESTS = 1, 2, 4, 8, 16, 32, 64
TOKENS = *REQUESTS, 128, 256
MASKS = 2**16  # numbers in all masks of a pass
LONGEST_TEXT = 2**24  # rows
CAPTURING = threading.Lock()  # torch allows one capture at a time in a process
Run = Callable[[], tuple[torch.Tensor, ...]]


class Capture:
    """Captures passes of a model in CUDA graphs, which have one pool of memory together.

    Only what a pass returns is needed after it, so the next one may use the memory of all else.
    """

    def __init__(self) -> None:
        self._pool: Any = None

    def __call__(self, run: Run) -> tuple[Callable[[], None], tuple[torch.Tensor, ...]]:
        """Capture `run`.

        Returns what repeats it over the same memory, and the tensors that then hold its answers.
        """
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        return cuda_graph(run, self._pool)


def cuda_graph(run: Run, pool: Any) -> tuple[Callable[[], None], tuple[torch.Tensor, ...]]:
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        # Kernels are compiled and workspaces made before the capture.
        run()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    # Without a stream of its own a capture would be on the first device that had one.
    with (
        CAPTURING,
        torch.cuda.graph(graph, pool=pool, stream=aside, capture_error_mode="thread_local"),
    ):
        answers = run()
    return graph.replay, answers


class GraphSize(NamedTuple):
    """The most that passes of a graph have.

    Attributes:
        tokens: tokens
        requests: requests
        longest: tokens of one request
    """

    tokens: int
    requests: int
    longest: int

    @classmethod
    def of(cls, inputs: torch.Tensor, packing: Packing) -> "GraphSize | None":
        """The smallest shape that holds a pass; None if none does or there is no scratch row."""
        tokens = next((n for n in TOKENS if n >= inputs.shape[1]), 0)
        requests = next((n for n in REQUESTS if n >= packing.table.shape[1] - 1), 0)
        lengths = packing.segments[:, 1] - packing.segments[:, 0]
        longest = next((n for n in TOKENS if n >= int(lengths.max())), 0)
        fits = tokens and requests and len(packing.masks) <= MASKS and packing.scratch >= 0
        return cls(tokens, requests, longest) if fits else None


class Graph:
    """A recorded pass of one shape over one arena, with the hidden states of some layers."""

    def __init__(
        self,
        shape: GraphSize,
        run: Pass,
        packing: Packing,
        features: Layers,
        record: Callable[[Run], tuple],
    ):
        device, (tokens, requests, longest) = packing.rows.device, shape
        self.shape, self.keys, self.scratch = shape, packing.keys, packing.scratch
        # Lines: ids, positions, rows, wanted.
        self.indices = torch.zeros(4, tokens, dtype=torch.long, device=device)
        self.indices[2] = self.scratch
        self.table = torch.zeros(5, requests + 1, dtype=torch.int32, device=device)
        self.masks = torch.zeros(MASKS, dtype=torch.bool, device=device)
        ids, positions, rows, wanted = self.indices
        # On the host, where the launch only reads the number of requests and the most that they and
        # their texts can hold.
        segments = torch.tensor([[0, longest, 0, LONGEST_TEXT, 0, -1, 0]] * requests)
        fixed = replace(
            packing,
            rows=rows,
            segments=segments,
            table=self.table,
            masks=self.masks,
            biases=torch.zeros(2, dtype=packing.biases.dtype, device=device),
            scratch=-1,
        )
        inputs = {
            "input_ids": ids[None],
            "position_ids": positions[None],
            "wanted": wanted,
            "packing": fixed,
        }
        self.replay, self.answers = record(lambda: run(**inputs, features=features))

    def run(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        wanted: torch.Tensor,
        packing: Packing,
    ) -> tuple[torch.Tensor, ...]:
        """Run a pass. The result is a copy, because the next replay overwrites the memory."""
        tokens, requests, _ = self.shape
        for line, tensor, filler in zip(
            self.indices,
            (input_ids[0], position_ids[0], packing.rows, wanted),
            (0, 0, self.scratch, 0),
            strict=True,
        ):
            line.copy_(pad(tensor, (0, tokens - len(tensor)), value=filler))
        # Unused requests begin and end after the last token.
        table = packing.table
        self.table.copy_(
            torch.cat([table, table[:, -1:].expand(-1, requests + 1 - table.shape[1])], 1)
        )
        self.masks[: len(packing.masks)].copy_(packing.masks)
        self.replay()
        logits, *features = self.answers
        return logits[: len(wanted)].clone(), *(
            states[: input_ids.shape[1]].clone() for states in features
        )


class Graphs:
    """Replays passes from CUDA graphs.

    A shape's first pass over an arena makes its graph, whose answer is compared with that of the
    plain pass. Only one pass at a time uses the buffers.

    Args:
        programs: the passes, which are recorded as programs where there are some
        arenas: the keys by layer of each arena that is in use; graphs over others are dropped, with
            the memory that they keep
        record: makes a graph of a function without arguments, and returns what replays it and its
            answers; by default a Capture

    Attributes:
        why: why all passes run plainly, since a capture has failed; else ""
    """

    def __init__(
        self,
        programs: Programs,
        arenas: Callable[[], Iterable[Sequence[torch.Tensor]]],
        record: Callable[[Run], tuple[Callable[[], None], tuple[torch.Tensor, ...]]] | None = None,
    ):
        self.programs, self.arenas, self.record = programs, arenas, record or Capture()
        self._graphs: dict[tuple, Graph] = {}
        self._running = threading.Lock()
        self.why = ""

    def prune(self) -> None:
        """Drop the graphs over arenas that nobody uses, or that have grown since."""
        with self._running:
            self._prune()

    def _prune(self) -> None:
        alive = {id(keys) for keys in self.arenas()}
        self._graphs = {k: g for k, g in self._graphs.items() if id(g.keys) in alive}

    @property
    def kind(self) -> str:
        """What is recorded, for people."""
        if self.programs.why:
            return f"from CUDA graphs of its modules ({self.programs.why})"
        return "from CUDA graphs of a program"

    def forget(self) -> None:
        """Drop all graphs, which know where weights lie that have changed."""
        with self._running:
            self._graphs, self.why = {}, ""
            self.programs.forget()

    def __call__(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        wanted: torch.Tensor,
        packing: Packing,
        features: Layers,
    ) -> tuple[torch.Tensor, ...]:
        inputs: dict[str, Any] = {
            "input_ids": input_ids,
            "position_ids": position_ids,
            "wanted": wanted,
            "packing": packing,
        }
        # Passes with windows in only some layers are not recorded.
        recorded = isinstance(packing, Packing) and not self.why
        shape = GraphSize.of(input_ids, packing) if recorded else None
        if shape is None or len(wanted) > shape.tokens:
            run = self.programs.plain if self.why else self.programs
            return run(**inputs, features=features)
        # An arena that grows has another list of keys, of which no other has the number while its
        # graphs are there.
        key = shape, features, id(packing.keys)
        with self._running:
            if key in self._graphs:
                return self._graphs[key].run(**inputs)
            self._prune()
            # A program is made before the capture.
            self.programs.serving(shape.tokens, features)
            expected = self.programs.plain(**inputs, features=features)
            try:
                graph = Graph(shape, self.programs, packing, features, self.record)
                answers = graph.run(**inputs)
                if not all(map(nearly, answers, expected)):
                    raise CannotRecord("a replay gave other numbers")
            except Exception as error:  # from a driver, or from code that a capture refuses
                self.why, self._graphs = first_line(error), {}
                runs_plainly(self.programs.name, self.why)
                return expected
            self._graphs[key] = graph
            # As all later passes of the shape: with the same bits.
            return answers
