"""The packed passes of one model in one run (PackedPasses); for comparison padded ones."""

from collections import defaultdict
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, cast

import torch

from decoders.engine.memory.arena import Arena
from decoders.engine.memory.arenas import Arenas, Caches
from decoders.engine.memory.feeds import Feed, PackedInputs, missing_ancestors
from decoders.engine.memory.rows import CacheRows, Layout
from decoders.engine.protocols import Answer, Features, Layers, Passes, Wants, Waste
from decoders.shapes import NodeId
from decoders.tree import TokenTree

PADDINGS = ("none", "inputs", "kv", "both")
# Stands for a node in a row that only aligns a request's cache with the others.
PAD: NodeId = -1


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
        self.model = model
        # Arenas are lent to the first request and given back by the last.
        self._lent: Arenas | None = None
        self._wanted = rows, most_rows, self.cache_kind, layout
        self.caches: dict[TokenTree, Caches] = {}

    @property
    def arenas(self) -> Arenas:
        assert self._lent is not None
        return self._lent

    @property
    def arena(self) -> Arena:
        """The arena of the layers that see farthest back; for most models the only one."""
        return self.arenas.each[0]

    def admit(self, tree: TokenTree, rows: int) -> bool:
        if self._lent is None:
            self._lent = self.model.lend(*self._wanted)
        caches = self._lent.take(rows, tree.prompt_length)
        if caches is not None:
            self.caches[tree] = caches
        return caches is not None

    def release(self, tree: TokenTree) -> None:
        if (caches := self.caches.pop(tree, None)) is not None:
            self.arenas.give_back(caches)
            if not self.caches and self.model.take_back(self.arenas):
                self._lent = None

    def rows_of(self, tree: TokenTree) -> int:
        """The cache rows that a request uses now, in the layers where it has most."""
        return max(map(len, self.caches[tree]))

    @torch.inference_mode()
    def run(self, wants: Wants, chunk: int | None = None, features: Layers = ()) -> list[Answer]:
        feeds = self.feeds(wants, chunk)
        output = self.model(self.pack(feeds), features)
        logits = output.logits if output.logits.dtype == torch.float64 else output.logits.float()
        answers, start, fed = [], 0, 0
        for feed, (_, nodes) in zip(feeds, wants, strict=True):
            part = slice(start, start := start + len(feed.wanted))
            seen = None
            if features:
                seen = Features(
                    feed.nodes, tuple(s[fed : fed + len(feed.nodes)] for s in output.features)
                )
                fed += self.length_of(feed)
            answers.append(
                Answer(
                    logits,
                    part if feed.wanted == list(nodes) else None,
                    self.arenas.bytes(self.caches[feed.tree]),
                    self.model.weight_bytes,
                    features=seen,
                )
            )
        return answers

    def feeds(self, wants: Wants, chunk: int | None) -> list[Feed]:
        """Collect what each request feeds, after dropping the cache rows of dropped nodes."""
        feeds = []
        self.arenas.sync([(self.caches[tree], tree) for tree, _ in wants])
        for tree, nodes in wants:
            cache, *_ = self.caches[tree]
            if any(n in cache.row for n in nodes):
                raise RuntimeError(
                    "a node was asked about a second time after its logits were dropped"
                )
            missing, wanted = missing_ancestors(tree, cache, nodes), list(nodes)
            if chunk is not None and sum(n < tree.prompt_length for n in missing) > chunk:
                missing, wanted = missing[:chunk], [missing[chunk - 1]]
            feeds.append(Feed(tree, cache, missing, wanted))
        return feeds

    def length_of(self, feed: Feed) -> int:
        """The number of tokens of the pass that belong to a feed."""
        return len(feed.nodes)

    def pack(self, feeds: Sequence[Feed]) -> PackedInputs:
        return self.arenas.pack(feeds, self.caches, self.model.by_request)


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
        kept = {tree: alive[tree] - before[tree][0] for tree in alive}
        self._longest = max(kept.values())
        for tree, cache in caches.items():
            self._rows[tree] = self._longest - kept[tree]
            self._aligned[tree] = alive[tree], tree.commits
            self.arena.make_room(cache, self._rows[tree])
            end = cache.base + len(cache)
            for t in (*self.arena.keys, *self.arena.values):
                t[end : end + self._rows[tree]] = 0
            cache.append_pads(self._rows[tree])
