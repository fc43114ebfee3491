"""Passes with padding, for comparison with unpadded ones (PaddedPasses)."""

from collections import defaultdict
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, cast

from decoders.engine.memory.feeds import Feed, PackedInputs
from decoders.engine.memory.rows import CacheRows
from decoders.engine.passes.packed import PackedPasses
from decoders.engine.protocols import Answer, Layers, Wants, Waste
from decoders.shapes import NodeId
from decoders.tree import TokenTree

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
