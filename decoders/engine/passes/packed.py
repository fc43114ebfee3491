"""The packed passes of one model in one run (PackedPasses)."""

from collections.abc import Sequence
from typing import Any

import torch

from decoders.engine.answers import Answer, Features, Further
from decoders.engine.memory.arena import Arena
from decoders.engine.memory.arenas import Arenas, Caches
from decoders.engine.memory.feeds import Feed, PackedInputs, missing_ancestors
from decoders.engine.memory.rows import CacheRows, Layout
from decoders.engine.passes.foresight import ahead, following, most
from decoders.engine.passes.rounds import Fed, rounds
from decoders.engine.protocols import Begun, Foresee, Layers, Passes, Wants
from decoders.scan import Found
from decoders.shapes import NodeId, TokenId
from decoders.tree import TokenTree


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
        self._foresee: dict[TokenTree, Foresee] = {}
        # A layer that sees back only so far gives rows back, or hides them, from one token to the
        # next.
        whole = self.cache_kind is CacheRows and not any(model.reaches)
        self._ahead = most(model.weight_bytes) if whole else 0

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
        self._foresee.pop(tree, None)
        if (caches := self.caches.pop(tree, None)) is not None:
            self.arenas.give_back(caches)
            if not self.caches and self.model.take_back(self.arenas):
                self._lent = None

    def rows_of(self, tree: TokenTree) -> int:
        """The cache rows that a request uses now, in the layers where it has most."""
        return max(map(len, self.caches[tree]))

    @property
    def ahead(self) -> int:
        return self._ahead

    def expect(self, tree: TokenTree, foresee: Foresee) -> None:
        self._foresee[tree] = foresee

    def rounds(self, draft: Passes, begun: Begun) -> tuple[Further, Further] | None:
        if not (isinstance(draft, PackedPasses) and self.ahead and draft.ahead):
            return None
        if not (self.arenas.simple and draft.arenas.simple):
            return None
        for each in (self, draft):  # there are rows of refused tokens
            each.arenas.sync([(each.caches[begun.tree], begun.tree)])
        target, drafts = (Fed(p.model, p.arena, p.caches[begun.tree][0]) for p in (self, draft))
        return rounds(target, drafts, begun)

    def fed(self, tree: TokenTree, nodes: Sequence[NodeId]) -> None:
        caches = self.caches[tree]
        if len(caches[0]) != tree.depths[nodes[0]]:  # there are rows of refused tokens
            self.arenas.sync([(caches, tree)])
        caches[0].append(tree, nodes)

    def forget(self, tree: TokenTree, place: int) -> None:
        self.caches[tree][0].cut(place)

    @torch.inference_mode()
    def run(self, wants: Wants, chunk: int | None = None, features: Layers = ()) -> list[Answer]:
        foresee = [self._foresee.pop(tree, None) for tree, _ in wants]
        feeds = self.feeds(wants, chunk)
        inputs = self.pack(feeds)
        output = self.model(inputs, features)
        logits = output.logits if output.logits.dtype == torch.float64 else output.logits.float()
        guessed: list[list[TokenId]] = [[] for _ in feeds]
        found: Found | None = None
        parts = any(f.wanted != list(nodes) for f, (_, nodes) in zip(feeds, wants, strict=True))
        if any(foresee) and not features and not parts:
            logits, guessed, found = ahead(self.model, feeds, inputs, logits, foresee)
        weights, each = map(self.model.bytes_read, (inputs.input_ids.numel(), len(feeds)))
        answers, start, fed = [], 0, 0
        for place, (feed, (_, nodes)) in enumerate(zip(feeds, wants, strict=True)):
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
                    weights,
                    features=seen,
                    further=following(feed, logits, guessed, place, each),
                    found=found,
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
