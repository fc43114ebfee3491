"""The packed passes of one model in one run: PackedPasses, and PaddedPasses for comparison.

A call of the kernels (`call`) is a pass, what is read of its logits, and perhaps a chain after it:
between two passes of a small model Python takes as long as one of them does. A chain takes its
random numbers before its first token, so nothing stands between its passes but the draws, which
the kernels make as `Distribution.draw` does: float64 masses, cumulated by rising id.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch

from decoders.distribution import MANY, Tops
from decoders.engine.attention.interface import Packing
from decoders.engine.cache import Arena, CacheRows, Layout
from decoders.engine.lowering.program import Program, Programs
from decoders.engine.pack import Caches, Feed, PackedInputs, missing_ancestors
from decoders.engine.protocols import (
    Answer,
    Features,
    Launch,
    Layers,
    OpenChain,
    Passes,
    Wants,
    Waste,
    comparable,
)
from decoders.shapes import NodeId, TokenId
from decoders.tree import TokenTree

# The most passes of a call, and the most bytes of float32 weights that they read (of copies, half
# as much): whoever stops a request waits for the call, and its first token for the last one.
PASSES, BYTES = 16, 2**30
DEVICE_BYTES = 2**35  # on a GPU: some 10 milliseconds too
REQUESTS = 4  # a pass of so many takes up to twice as long as that of one
NOTHING = np.empty((0, 0), np.int64), np.empty((0, 4)), np.empty((0, 0)), np.empty(0, np.int64)
NO_STATES, ALL = np.empty((0, 0), np.float32), np.empty(0, np.int64)


def call(
    program: Program,
    weight_bytes: int,
    feeds: Sequence[Feed],
    inputs: PackedInputs,
    sought: int,
    chains: Sequence[OpenChain],
    entering: np.ndarray = NO_STATES,
    proposed: np.ndarray = ALL,
) -> Launch:
    """Make a pass, and draw as many tokens of each chain as one call takes.

    Args:
        program: the program of the model
        weight_bytes: bytes of its weights in float32
        feeds: what the requests feed
        inputs: the tensors of the pass
        sought: how many of the likeliest tokens are looked for in each row
        chains: the chain of each request, or none
        entering: of a head the states before the tokens, (tokens, W)
        proposed: the tokens that a head proposes, if not all
    """
    requests, count = len(feeds), len(inputs.wanted)
    steps = length(weight_bytes, feeds, inputs, chains) if chains else 0
    rows, most = (
        count + max(0, steps - 1) * requests,
        min(sought if sought <= MANY else 1, program.size),
    )
    logits, sums = np.empty((rows, program.size), np.float32), np.empty(rows)
    tops, ids = np.empty((rows, most), np.float32), np.empty((rows, most), np.int64)
    plan = NOTHING
    if steps:
        numbers = [chain.numbers(steps) if chain.numbers else [0.0] * steps for chain in chains]
        plan = (
            np.empty((steps, requests), np.int64),
            np.array([chain.warping.numbers for chain in chains], np.float64),
            np.array(numbers, np.float64).T.copy(),
            np.array([*{end for chain in chains for end in chain.ends}], dtype=np.int64),
        )
    states = np.empty(
        (len(entering) + rows, entering.shape[1]) if entering.size else (0, 0), np.float32
    )
    passes = program.passes(inputs, logits, (tops, ids, sums), *plan, entering, states, proposed)
    if passes:
        rows = passes * requests
    best = Tops(tops[:rows], ids[:rows], {1.0: sums[:rows]}, program.scan)
    return Launch(logits[:rows], best, plan[0][:passes], states)


def length(
    weight_bytes: int,
    feeds: Sequence[Feed],
    inputs: PackedInputs,
    chains: Sequence[OpenChain],
    most: int = BYTES,
) -> int:
    """How many tokens of each chain a call draws, reading at most so many bytes; 0 if it cannot."""
    packing = inputs.packing
    # Every token must see all rows before it.
    if not isinstance(packing, Packing) or any(line[4] >= 0 for line in packing.segments.tolist()):
        return 0
    passes = most // (weight_bytes * -(-len(feeds) // REQUESTS))
    room = min(feed.cache.capacity - len(feed.cache) for feed in feeds)
    return min(max(1, min(PASSES, passes)), 1 + room, *(chain.steps for chain in chains))


class PackedPasses(Passes):
    """The packed passes of one model in one run.

    Args:
        model: the prepared model (`decoders.engine.models.packed.PackedModel`)
        rows: cache rows that the requests are expected to need together
        most_rows: the most cache rows that they may have, or None for no limit
        layout: the contents of the layers' caches, if they differ from the model's
    """

    cache_kind = CacheRows

    def __init__(
        self,
        model: Any,
        rows: int = 0,
        most_rows: int | None = None,
        layout: Sequence[Layout] | None = None,
    ):
        self.model, self._graphs = model, model.graphs
        # In a run they do not change.
        self._bytes_read = lru_cache(model.bytes_read)
        self.arenas: Any = None  # lent to the first request and given back by the last
        self._wanted = rows, most_rows, self.cache_kind, layout
        self.caches: dict[TokenTree, Caches] = {}
        # A layer that sees back only so far gives rows back, or hides them, from one token to the
        # next.
        self.simple = self.cache_kind is CacheRows and not any(model.reaches)

    @property
    def arena(self) -> Arena:
        """The arena of the layers that see farthest back; for most models the only one."""
        return self.arenas.each[0]

    def admit(self, tree: TokenTree, rows: int) -> bool:
        if self.arenas is None:
            self.arenas = self.model.lend(*self._wanted)
        caches = self.arenas.take(rows, tree.prompt_length)
        if caches is not None:
            self.caches[tree] = caches
        return caches is not None

    def release(self, tree: TokenTree) -> None:
        if (caches := self.caches.pop(tree, None)) is not None:
            self.arenas.give_back(caches)
            if not self.caches and self.model.take_back(self.arenas):
                self.arenas = None

    def rows_of(self, tree: TokenTree) -> int:
        """The cache rows that a request uses now, in the layers where it has most."""
        return max(map(len, self.caches[tree]))

    def grow(self, tree: TokenTree, nodes: Sequence[NodeId]) -> None:
        if nodes:
            self.caches[tree][0].append(tree, nodes)

    def run(self, wants: Wants, chunk: int | None = None, features: Layers = ()) -> list[Answer]:
        return self._answers(wants, chunk, features)

    def read(
        self,
        wants: Wants,
        sought: int,
        chains: Sequence[OpenChain] = (),
        chunk: int | None = None,
        held: int = 1,
        temperatures: Collection[float] = (),
        whole: bool = False,
    ) -> list[Answer]:
        if not self.simple:
            return self.run(wants, chunk)
        return self._answers(wants, chunk, (), sought, chains, held, temperatures, whole)

    def _answers(
        self,
        wants: Wants,
        chunk: int | None,
        features: Layers,
        sought: int = 0,
        chains: Sequence[OpenChain] = (),
        held: int = 1,
        temperatures: Collection[float] = (),
        whole: bool = False,
    ) -> list[Answer]:
        feeds = self.feeds(wants, chunk)
        inputs = self.pack(feeds)
        tokens, longest = inputs.input_ids.shape[1], max(len(feed.nodes) for feed in feeds)
        forward, program = self.model.forward, None
        if sought and isinstance(forward, Programs):
            program = forward.serving(longest)
        launch, hidden = None, list[torch.Tensor]()
        # A part of a prompt draws nothing.
        ready = all(f.wanted == list(nodes) for f, (_, nodes) in zip(feeds, wants, strict=True))
        chains = chains if ready else ()
        if self._graphs is not None and sought:
            size = self.model.weight_bytes
            steps = length(size, feeds, inputs, chains, DEVICE_BYTES) if chains else 0
            asked = held, temperatures, chains, steps, whole
            launch = self.model.launch(self._graphs, inputs, *asked)
            rows = launch.rows
        elif program is None:
            logits, *hidden = self.model(inputs, features)
            rows = comparable(logits)
        else:
            size = self.model.weight_bytes * 4 // program.dtype.itemsize
            launch = call(program, size, feeds, inputs, sought, chains)
            rows = launch.rows
        passes, tops = (max(1, len(launch.tokens)), launch.tops) if launch else (1, None)
        first, each = map(self._bytes_read, (longest if program else tokens, len(feeds)))
        answers, start, fed = [], 0, 0
        for place, (feed, (_, nodes)) in enumerate(zip(feeds, wants, strict=True)):
            part = slice(start, start := start + len(feed.wanted))
            states: Features | None = None
            picks: list[TokenId] = []
            if launch and len(launch.tokens):
                part = slice(place, None, launch.tokens.shape[1])
                picks = launch.tokens[:, place].tolist()
            if hidden:
                states = Features(feed.nodes, tuple(s[fed : fed + len(feed.nodes)] for s in hidden))
                fed += self.length_of(feed)
            answers.append(
                Answer(
                    rows,
                    part if feed.wanted == list(nodes) else None,
                    self.arenas.bytes(self.caches[feed.tree]),
                    first + (passes - 1) * each,
                    passes=passes,
                    features=states,
                    tokens=picks,
                    tops=tops,
                )
            )
        return answers

    def feeds(self, wants: Wants, chunk: int | None) -> list[Feed]:
        """Collect what each request feeds, after dropping the cache rows of dropped nodes."""
        feeds = []
        self.arenas.sync([(self.caches[tree], tree) for tree, _ in wants])
        for tree, nodes in wants:
            cache, *_ = self.caches[tree]
            again = any(n in cache.row for n in nodes)
            assert not again, "a node was asked about again after its logits were dropped"
            missing, wanted = missing_ancestors(tree, cache, nodes), list(nodes)
            if chunk is not None and sum(n < tree.prompt_length for n in missing) > chunk:
                missing, wanted = missing[:chunk], [missing[chunk - 1]]
            feeds.append(Feed(tree, cache, missing, wanted))
        return feeds

    def length_of(self, feed: Feed) -> int:
        return len(feed.nodes)

    def pack(self, feeds: Sequence[Feed]) -> PackedInputs:
        stay = self._graphs is not None
        return self.arenas.pack(feeds, self.caches, self.model.by_request, stay)


PADDINGS = ("none", "inputs", "kv", "both")
# Stands for a node in a row that only aligns a request's cache with the others.
PAD: NodeId = -1


def fill_up(feeds: Sequence[Feed]) -> list[Feed]:
    """Fill the feeds up to the longest of them; those of prompts stay as they are."""
    # Those of prompts count as 0.
    lengths = [len(f.nodes) if f.nodes[0] >= f.tree.prompt_length else 0 for f in feeds]
    pads = [max(lengths) - n if n else 0 for n in lengths]
    return [with_pads(f, count) if count else f for f, count in zip(feeds, pads, strict=True)]


def with_pads(feed: Feed, count: int) -> Feed:
    """The feed and, below its last node, a chain of pads, in a copy of its tree.

    Pads are then computed and attend like any other token, and no other token sees them. They share
    the last node's depth, because the model may have no positions after it.
    """
    tree, last, size = copy(feed.tree), feed.nodes[-1], len(feed.tree.tokens)
    nodes = [*feed.nodes, *range(size, size + count)]
    tree.tokens = [*tree.tokens, *[0] * count]
    tree.parents = [*tree.parents, *nodes[-1 - count : -1]]
    tree.depths = [*tree.depths, *[tree.depths[last]] * count]
    return replace(feed, tree=tree, nodes=nodes)


class PaddedRows(CacheRows):
    """Cache rows of which some are pads.

    No token sees a pad and pads never die, but their zeros are read like any other row.
    """

    def lasts(self, node: NodeId, tree: TokenTree) -> bool:
        return node == PAD or super().lasts(node, tree)

    def sync(self, tree: TokenTree) -> list[int] | None:
        moved = super().sync(tree)
        self.row.pop(PAD, None)
        return moved

    def append_pads(self, count: int) -> None:
        self.nodes += [PAD] * count
        tail = self._grow_visible()
        self.visible[tail - count : tail] = False

    def alive(self, tree: TokenTree) -> int:
        return self.fed(tree) + sum(node in self.row for node in tree.tail)


class PaddedPasses(PackedPasses):
    """Passes with padding: the tokens are the same; only the work grows.

    Args:
        model: the prepared model
        padding: "inputs" fills every request's tokens up to the longest of the pass; "kv" makes
            every cache grow, once per round, as much as that of the request that kept most; "both"
            is the vanilla scheme. Prompts are not padded.
        rows: cache rows that the requests are expected to need together

    Source:
        Ni et al. 2024, EMS-SD (arXiv 2405.07542), section 3.1
    """

    cache_kind = PaddedRows

    def __init__(self, model: Any, padding: str, rows: int = 0):
        super().__init__(model, rows)
        self.padding = padding
        # Live rows and commits at the last alignment.
        self._aligned: dict[TokenTree, tuple[int, int]] = {}

    def release(self, tree: TokenTree) -> None:
        self._aligned.pop(tree, None)
        super().release(tree)

    def run(self, wants: Wants, chunk: int | None = None, features: Layers = ()) -> list[Answer]:
        self._rows: dict[TokenTree, int] = defaultdict(int)
        self._tokens: dict[TokenTree, int] = defaultdict(int)
        self._longest = 0
        return [
            replace(answer, waste=Waste(self._tokens[tree], self._rows[tree], self._longest))
            for answer, (tree, _) in zip(super().run(wants, chunk, features), wants, strict=True)
        ]

    def feeds(self, wants: Wants, chunk: int | None) -> list[Feed]:
        feeds = super().feeds(wants, chunk)
        if self.padding != "inputs":
            self._align(feeds)
        return feeds

    def pack(self, feeds: Sequence[Feed]) -> PackedInputs:
        if self.padding == "kv":
            return super().pack(feeds)
        filled = fill_up(feeds)
        inputs = super().pack(filled)
        for feed, padded in zip(feeds, filled, strict=True):
            self._tokens[feed.tree] = len(padded.nodes) - len(feed.nodes)
            # The pass writes these rows, and the next one may use them again.
            for _ in range(self._tokens[feed.tree]):
                feed.cache.drop_last()
        return inputs

    def length_of(self, feed: Feed) -> int:
        return len(feed.nodes) + self._tokens[feed.tree]

    def _align(self, feeds: Sequence[Feed]) -> None:
        """Once per round, pad every cache, for good, to the growth of the one that kept most."""
        before = {
            feed.tree: self._aligned.get(feed.tree, (feed.tree.prompt_length - 1, 0))
            for feed in feeds
        }
        if any(tree.commits == commits for tree, (_, commits) in before.items()):
            return
        caches = {feed.tree: cast(PaddedRows, feed.cache) for feed in feeds}  # of the arena's kind
        alive = {tree: cache.alive(tree) for tree, cache in caches.items()}
        growth = {tree: alive[tree] - before[tree][0] for tree in alive}
        self._longest = max(growth.values())
        for tree, cache in caches.items():
            self._rows[tree] = self._longest - growth[tree]
            self._aligned[tree] = alive[tree], tree.commits
            self.arena.make_room(cache, self._rows[tree])
            end = cache.base + len(cache)
            for t in (*self.arena.keys, *self.arena.values):
                t[end : end + self._rows[tree]] = 0
            cache.append_pads(self._rows[tree])
