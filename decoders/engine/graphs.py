"""Passes over fixed buffers, recorded once for each shape as CUDA graphs and replayed.

A replay is one copy to the device, one launch and one copy back. A graph freezes addresses and
Python numbers. So a pass is copied into the buffer of its shape, which is filled up with tokens
that belong to no request and write to the arena's scratch row, and its attention is the one kernel
that reads everything from the buffer. What is read of the logits, and the draws of a chain with the
passes after them, are part of the graph. Where more may be asked of the logits than that, they come
back in the same copy: a row of 128,000 takes some 20 microseconds, a second trip twice as long.
"""

import sys
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from decoders.devices import device_of
from decoders.distribution import UNDER_ONE, Tops, read_of
from decoders.engine.attention.interface import Packing
from decoders.engine.lowering.program import Pass, Programs, nearly, runs_plainly
from decoders.engine.pack import MASKS, InputPlan, PackedInputs, brought
from decoders.engine.protocols import Launch, Layers, OpenChain, comparable
from decoders.engine.recorder import CannotRecord
from decoders.errors import first_line
from decoders.shapes import Logits

# The sizes to which passes are filled up; larger passes run plainly.
REQUESTS = 1, 2, 4, 8, 16, 32, 64
TOKENS = *REQUESTS, 128, 256
STEPS = 1, 2, 3, 4, 5, 6, 8, 10, 12, 16  # of a chain; others are made of two
HELD = 8, 32, 66, 130, 258  # likeliest tokens of each row that come back
LONGEST_TEXT = 2**24  # rows
# The most bytes of logits that come back with a launch: where distributions may need all of them
# (a millisecond, at 25 GB/s), and elsewhere. More stay on the device.
NEEDED, USEFUL = 2**25, 2**22
CAPTURING = threading.Lock()  # torch allows one capture at a time in a process
Run = Callable[[], tuple[torch.Tensor, ...]]


def cuda_graph(run: Run, pool: Any) -> tuple[Callable[[], None], tuple[torch.Tensor, ...]]:
    """Capture a pass in a CUDA graph.

    Args:
        run: the pass
        pool: memory that the graphs of a model share: only what a pass returns is needed after it

    Returns:
        what repeats the pass over the same memory, and the tensors that then hold its answers
    """
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
        masked: whether any of them has a mask
    """

    tokens: int
    requests: int
    longest: int
    masked: bool

    @classmethod
    def of(cls, inputs: torch.Tensor, packing: Packing) -> "GraphSize | None":
        """The smallest shape that holds a pass; None if none does or there is no scratch row."""
        segments = packing.segments.tolist()
        most = max(stop - start for start, stop, *_ in segments)
        requests = next((n for n in REQUESTS if n >= len(segments)), 0)
        tokens, longest = (
            next((n for n in TOKENS if n >= size), 0) for size in (inputs.shape[1], most)
        )
        fits = tokens and requests and len(packing.masks) <= MASKS and packing.scratch >= 0
        masked = any(line[4] >= 0 for line in segments)
        return cls(tokens, requests, longest, masked) if fits else None


class Extras(NamedTuple):
    """What else a graph does with the logits.

    Attributes:
        held: how many of the likeliest tokens of each row it looks for
        steps: tokens of each chain that it draws; 0 for none
        chance: whether any of them is drawn, and not the likeliest
        sorts: whether top-p or min-p alone cuts any of their distributions
    """

    held: int
    steps: int = 0
    chance: bool = False
    sorts: bool = False


class Graph:
    """A recorded pass of one shape over one arena, and perhaps a chain after it.

    Args:
        shape: the shape
        run: the pass
        packing: one of such a pass, for what all of them share
        features: the layers whose hidden states it returns
        extras: what it does with the logits, or None if it returns them alone
        record: makes a graph of a function
    """

    def __init__(
        self,
        shape: GraphSize,
        run: Pass,
        packing: Packing,
        features: Layers,
        extras: Extras | None,
        record: Callable[[Run], tuple],
    ):
        device, (_, requests, longest, masked) = packing.keys[0].device, shape
        self.shape, self.extras = shape, extras
        self.keys, self.scratch = packing.keys, packing.scratch
        self.steps = extras.steps if extras else 0
        self.plan = InputPlan(shape.tokens, requests, self.steps)
        self.memory = torch.zeros(self.plan.size, dtype=torch.uint8, device=device)
        inputs = self.plan.of(self.memory)
        self._pinned = device_of(device).pins
        # A launch is over when its answer is there, so the next one may write into the same memory.
        self._parts = self._room(self.plan.size)
        ids, positions, rows, wanted = inputs["indices"]
        rows.fill_(self.scratch)
        if self.steps:
            inputs["chain"][1].fill_(self.scratch)
        # On the host, where the launch only reads the number of requests, the most that they and
        # their texts can hold, and whether any has a mask and any has none.
        segments = torch.tensor([[0, longest, 0, LONGEST_TEXT, -1, 0]] * requests)
        segments[0, 4] = 0 if masked else -1
        fixed = replace(
            packing,
            rows=rows,
            segments=segments,
            table=inputs["table"],
            masks=inputs["masks"],
            scratch=-1,
        )

        def whole() -> tuple[torch.Tensor, ...]:
            logits, *states = run(
                input_ids=ids[None],
                position_ids=positions[None],
                wanted=wanted,
                packing=fixed,
                features=features,
            )
            if extras is None:
                return logits, *states
            rows, read = self._with_extras(logits, extras, inputs, run, fixed)
            self._sizes = *read.shape, read.nbytes, rows.shape[1], rows.dtype
            # First what every launch brings back.
            return (torch.cat([x.flatten().view(torch.uint8) for x in (read, rows)]),)

        self.replay, self.answers = record(whole)

    def _with_extras(
        self,
        logits: Logits,
        extras: Extras,
        inputs: dict[str, torch.Tensor],
        run: Pass,
        fixed: Packing,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The logits, those of a chain's passes after them, and what is read of each row."""
        rows, picks = comparable(logits), [torch.zeros(len(logits), device=logits.device)]
        if extras.steps:
            rows, picks = self._with_chains(rows, extras, inputs, run, fixed)
        hot = inputs["temperatures"].to(rows.dtype).clamp(min=torch.finfo(rows.dtype).tiny)
        read = read_of(rows, min(extras.held, rows.shape[-1]), hot)
        return rows, torch.cat([read, torch.cat(picks)[:, None].double()], -1)

    def _with_chains(
        self,
        rows: Logits,
        extras: Extras,
        inputs: dict[str, torch.Tensor],
        run: Pass,
        fixed: Packing,
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The logits before each token of chains that a pass begins, and the tokens."""
        requests = self.shape.requests
        every, picks = [rows[:requests]], list[torch.Tensor]()
        place = torch.arange(requests, device=rows.device)
        positions, into, growth = inputs["chain"]
        table = inputs["later"].clone()
        segments = torch.tensor([[0, 1, 0, LONGEST_TEXT, -1, 0]] * requests)
        for step in range(extras.steps):
            tokens = draw(every[-1], inputs["warpings"], inputs["numbers"][step], extras)
            picks.append(tokens)
            if step + 1 == extras.steps:
                break
            later = replace(fixed, rows=into, table=table, segments=segments)
            logits, *_ = run(
                input_ids=tokens[None],
                position_ids=positions[None],
                wanted=place,
                packing=later,
                features=(),
            )
            every.append(comparable(logits))
            positions, into, table = positions + growth, into + growth, table.clone()
            table[2] += 1
        return torch.cat(every), picks

    def _room(self, size: int) -> tuple[torch.Tensor, dict[str, np.ndarray]]:
        """Memory on the host for passes of some bytes, and the arrays that lie in it."""
        memory = torch.zeros(size, dtype=torch.uint8, pin_memory=self._pinned)
        return memory, {name: part.numpy() for name, part in self.plan.of(memory).items()}

    def _start(
        self, inputs: PackedInputs, room: tuple[torch.Tensor, dict[str, np.ndarray]]
    ) -> None:
        """Bring in a pass by way of this memory, and replay it."""
        (memory, parts), packing = room, inputs.packing
        n, indices = inputs.input_ids.shape[1], parts["indices"]
        indices[:] = 0
        indices[2] = self.scratch
        indices[0, :n], indices[1, :n] = inputs.input_ids.numpy(), inputs.position_ids.numpy()
        indices[2, :n] = packing.rows.numpy()
        indices[3, : len(inputs.wanted)] = inputs.wanted.numpy()
        # Unused requests begin and end after the last token.
        count, table = packing.table.shape[1], parts["table"]
        table[:, :count] = packing.table.numpy()
        table[:, count:] = table[:, count - 1 : count]
        masks = len(packing.masks)
        parts["masks"][:masks] = packing.masks.numpy()
        size = self.plan.bytes(masks)
        self.memory[:size].copy_(memory[:size], non_blocking=True)
        self.replay()

    def run(self, inputs: PackedInputs) -> tuple[torch.Tensor, ...]:
        """Run a pass. The result is a copy, because the next replay overwrites the memory."""
        self._start(inputs, self._room(self.plan.bytes(len(inputs.packing.masks))))
        logits, *features = self.answers
        return logits[: len(inputs.wanted)].clone(), *(
            states[: inputs.input_ids.shape[1]].clone() for states in features
        )

    def launch(
        self,
        inputs: PackedInputs,
        temperature: float,
        chains: Sequence[OpenChain],
        whole: bool,
    ) -> Launch:
        """Run a pass and what follows it.

        Args:
            inputs: the pass, on the host
            temperature: of which it adds up exponentials, besides 1
            chains: the chain of each request, if it draws
            whole: whether distributions may need all logits
        """
        extras, requests = self.extras, self.shape.requests
        assert extras is not None
        _, parts = self._parts
        parts["temperatures"][:] = 1, max(temperature, sys.float_info.min)
        count = len(inputs.wanted)
        if extras.steps:
            count = extras.steps * requests
            self._fill_chains(inputs, parts, chains)
        self._start(inputs, self._parts)
        (answer,), (most, width, begin, vocabulary, kind) = self.answers, self._sizes
        size = count * vocabulary * kind.itemsize
        back = size <= (NEEDED if whole else USEFUL)
        end = begin + size * back
        host = torch.empty(end, dtype=torch.uint8, pin_memory=self._pinned)
        host.copy_(answer[:end])
        came = host.numpy()
        numbers = came[:begin].view(np.float64).reshape(most, width)[:count]
        if back:
            number = np.float64 if kind == torch.float64 else np.float32
            rows: Logits | np.ndarray = came[begin:].view(number).reshape(count, vocabulary)
        else:
            # The next replay overwrites the memory.
            rows = answer[begin : begin + size].clone().view(kind).view(count, vocabulary)
        held = (width - 3) // 2
        logits, ids, tokens = numbers[:, :held], numbers[:, held:-3], numbers[:, -1:]
        excesses = {1.0: numbers[:, -3], temperature: numbers[:, -2]}
        tops = Tops(logits, ids.astype(np.int64), excesses)
        picks = (
            tokens.astype(np.int64).reshape(extras.steps, requests) if extras.steps else tokens[:0]
        )
        return Launch(rows, tops, picks)

    def _fill_chains(
        self,
        inputs: PackedInputs,
        parts: dict[str, np.ndarray],
        chains: Sequence[OpenChain],
    ) -> None:
        packing, steps, count = inputs.packing, self.steps, len(chains)
        last = packing.segments[:, 1].numpy() - 1
        chain, later = parts["chain"], parts["later"]
        chain[:], chain[1] = 0, self.scratch
        chain[0, :count] = inputs.position_ids[0].numpy()[last] + 1
        chain[1, :count] = packing.rows.numpy()[last] + 1
        chain[2, :count] = 1
        table = packing.table.numpy()
        later[:] = 0
        later[0] = np.minimum(np.arange(later.shape[1]), count)
        later[1, :count], later[2, :count] = table[1, :count], table[2, :count] + 1
        later[3] = -1
        warpings, numbers = parts["warpings"], parts["numbers"]
        warpings[:], numbers[:] = (1, 0, 1, 0), 0
        for place, each in enumerate(chains):
            warpings[place] = each.warping.numbers
            if each.numbers is not None:
                numbers[:, place] = each.numbers(steps)


def draw(
    rows: Logits, warpings: torch.Tensor, uniforms: torch.Tensor, extras: Extras
) -> torch.Tensor:
    """Draw a token from each row (n, V), as `Distribution.draw` does.

    The likeliest `count` tokens stay, of equals those with the lower ids. So many are those before
    top-k's end and up to the one that crosses top-p, and none is less likely than min-p has it.

    Args:
        rows: the logits
        warpings: temperature, top-k, top-p and min-p of each row, (n, 4)
        uniforms: the uniform numbers, (n,)
        extras: how many of the likeliest are looked for, at least top-k, if there is chance, and if
            all are sorted, as top-p and min-p alone need
    """
    likeliest, size = rows.argmax(-1), rows.shape[-1]
    if not extras.chance:
        return likeliest
    temperature, top_k, top_p, min_p = (x[:, None] for x in warpings.T)
    hot = temperature.clamp(min=sys.float_info.min)
    highest, held = rows.amax(-1, keepdim=True), size if extras.sorts else min(extras.held, size)
    values = (rows.sort(descending=True) if extras.sorts else rows.topk(held)).values
    weights = ((values.double() - highest.double()) / hot).exp()
    most = top_k.where(top_k > 0, size)
    weights = weights.masked_fill(torch.arange(held, device=rows.device) >= most, 0)
    sums = weights.cumsum(-1)
    count = torch.where(top_p < 1, (sums < top_p * sums[:, -1:]).sum(-1, keepdim=True) + 1, most)
    count = torch.minimum(count, (weights >= min_p).sum(-1, keepdim=True)).minimum(most)
    count = count.clamp(1, held).long()
    edge = values.gather(-1, count - 1)
    above, equal = rows > edge, rows == edge
    stays = above | (equal & (equal.cumsum(-1) <= count - above.sum(-1, keepdim=True)))
    stays = stays | ((top_k == 0) & (top_p == 1) & (min_p == 0))
    below = ((rows.double() - highest.double()) / hot).exp().masked_fill(~stays, 0).cumsum(-1)
    goal = uniforms[:, None] * (below[:, -1:] * UNDER_ONE)
    tokens = torch.searchsorted(below, goal, right=True).clamp(max=rows.shape[-1] - 1)
    return torch.where(temperature > 0, tokens, likeliest[:, None])[:, 0]


class Graphs:
    """Replays passes from CUDA graphs.

    A shape's first pass over an arena makes its graph, whose answer is compared with that of the
    plain pass. Only one pass at a time uses the buffers.

    Args:
        programs: the passes, which are recorded as programs where there are some
        arenas: the keys by layer of each arena that is in use; graphs over others are dropped, with
            the memory that they keep
        record: makes a graph of a function without arguments, and returns what replays it and its
            answers; by default `cuda_graph`

    Attributes:
        why: why all passes run plainly, since a capture has failed; else ""
    """

    def __init__(
        self,
        programs: Programs,
        arenas: Callable[[], Iterable[Sequence[torch.Tensor]]],
        record: Callable[[Run], tuple[Callable[[], None], tuple[torch.Tensor, ...]]] | None = None,
    ):
        self.programs, self.arenas = programs, arenas
        self.record = record or partial(cuda_graph, pool=torch.cuda.graph_pool_handle())
        self._graphs: dict[tuple, Graph] = {}
        self._running = threading.RLock()
        self.why = ""

    def prune(self) -> None:
        """Drop the graphs over arenas that nobody uses, or that have grown since."""
        with self._running:
            alive = {id(keys) for keys in self.arenas()}
            self._graphs = {k: g for k, g in self._graphs.items() if id(g.keys) in alive}

    @property
    def kind(self) -> str:
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
        """Run a pass whose tensors are on the host; its answers are on the device."""
        inputs = PackedInputs(input_ids, position_ids, wanted, packing)
        answers = self._replayed(
            inputs, features, None, lambda graph: graph.run(inputs), lambda answers: answers
        )
        run = self.programs.plain if self.why else self.programs
        return answers or run(**brought(inputs)._asdict(), features=features)

    def launch(
        self,
        inputs: PackedInputs,
        held: int,
        temperatures: Collection[float],
        chains: Sequence[OpenChain] = (),
        steps: int = 0,
        whole: bool = False,
    ) -> Launch:
        """Run a pass, read its logits, and draw chains.

        Args:
            inputs: the pass, on the host
            held: how many of the likeliest tokens readings hold
            temperatures: those of which exponentials are added up
            chains: the chain of each request, if it draws
            steps: the most tokens of them
            whole: whether distributions may need all logits
        """
        others = sorted({*temperatures} - {0, 1}) or [1.0]
        most = next((n for n in HELD if n > held), 0)
        steps = max((n for n in STEPS if n <= steps), default=0)
        warpings = [chain.warping for chain in chains if chain.numbers and steps]
        sorts = any(warping.cuts and not warping.top_k for warping in warpings)
        extras = Extras(most, steps, bool(warpings), sorts)
        # Of further temperatures the host adds up exponentials.
        whole = whole or len(others) > 1
        launch = most and self._replayed(
            inputs,
            (),
            extras,
            lambda graph: graph.launch(inputs, others[0], chains if steps else (), whole),
            lambda launch: (launch.rows[: len(inputs.wanted)],),
        )
        if launch:
            return launch
        logits, *_ = self(**inputs._asdict(), features=())
        return Launch(comparable(logits), None, np.empty((0, 1), np.int64))

    def _replayed(
        self,
        inputs: PackedInputs,
        features: Layers,
        extras: Extras | None,
        run: Callable[[Graph], Any],
        answers_of: Callable[[Any], tuple[torch.Tensor, ...]],
    ) -> Any:
        """What `run` makes of the graph of a pass, or None if the pass cannot be replayed.

        Args:
            inputs: the pass
            features: the layers whose hidden states it returns
            extras: what the graph does with the logits
            run: uses the graph
            answers_of: the answers of the pass in what `run` returns
        """
        packing = inputs.packing
        # Passes with windows in only some layers are not recorded.
        shape = isinstance(packing, Packing) and GraphSize.of(inputs.input_ids, packing)
        if not shape or self.why or len(inputs.wanted) > shape.tokens:
            return None
        # An arena that grows has another list of keys, of which no other has the number while its
        # graphs are there.
        key = shape, features, extras, id(packing.keys)
        with self._running:
            if key in self._graphs:
                return run(self._graphs[key])
            self.prune()
            # A program is made before the capture.
            self.programs.serving(shape.tokens, features)
            expected = self.programs.plain(**brought(inputs)._asdict(), features=features)
            try:
                graph = Graph(shape, self.programs, packing, features, extras, self.record)
                result = run(graph)
                answers = (
                    torch.as_tensor(x, device=expected[0].device) for x in answers_of(result)
                )
                if not all(map(nearly, answers, expected)):
                    raise CannotRecord("a replay gave other numbers")
            except Exception as error:  # from a driver, or from code that a capture refuses
                self.why, self._graphs = first_line(error), {}
                runs_plainly(self.programs.name, self.why)
                return None
            self._graphs[key] = graph
            # As all later passes of the shape: with the same bits.
            return result
