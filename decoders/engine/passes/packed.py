"""The packed passes of one model in one run (PackedPasses)."""

from collections.abc import Sequence
from typing import Any

import torch

from decoders.engine.memory.arena import Arena
from decoders.engine.memory.arenas import Arenas, Caches
from decoders.engine.memory.feeds import Feed, PackedInputs, missing_ancestors
from decoders.engine.memory.rows import CacheRows, Layout
from decoders.engine.passes.call import call
from decoders.engine.protocols import Answer, Chain, Features, Layers, Passes, Wants
from decoders.shapes import NodeId
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
        # A layer that sees back only so far gives rows back, or hides them, from one token to the
        # next.
        self.simple = self.cache_kind is CacheRows and not any(model.reaches)

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

    def grow(self, tree: TokenTree, nodes: Sequence[NodeId]) -> None:
        if nodes:
            self.caches[tree][0].append(tree, nodes)

    def run(self, wants: Wants, chunk: int | None = None, features: Layers = ()) -> list[Answer]:
        return self._answers(wants, chunk, features)

    def read(
        self, wants: Wants, sought: int, chains: Sequence[Chain] = (), chunk: int | None = None
    ) -> list[Answer]:
        if not self.simple:
            return self.run(wants, chunk)
        return self._answers(wants, chunk, (), sought, chains)

    @torch.inference_mode()
    def _answers(
        self,
        wants: Wants,
        chunk: int | None,
        features: Layers,
        sought: int = 0,
        chains: Sequence[Chain] = (),
    ) -> list[Answer]:
        feeds = self.feeds(wants, chunk)
        inputs = self.pack(feeds)
        tokens = inputs.input_ids.shape[1]
        program = self.model.program(tokens) if sought else None
        called, output = None, None
        if program is None:
            output = self.model(inputs, features)
            rows = output.logits if output.logits.dtype == torch.float64 else output.logits.float()
        else:
            # A part of a prompt draws nothing.
            whole = all(f.wanted == list(nodes) for f, (_, nodes) in zip(feeds, wants, strict=True))
            called = call(
                program, self.model.weight_bytes, feeds, inputs, sought, chains if whole else ()
            )
            rows = called.rows
        passes = called.passes if called else 1
        first, each = map(self.model.bytes_read, (tokens, len(feeds)))
        answers, start, fed = [], 0, 0
        for place, (feed, (_, nodes)) in enumerate(zip(feeds, wants, strict=True)):
            part, states = slice(start, start := start + len(feed.wanted)), None
            if features and output:
                states = Features(
                    feed.nodes, tuple(s[fed : fed + len(feed.nodes)] for s in output.features)
                )
                fed += self.length_of(feed)
            answer = Answer(
                rows,
                part if feed.wanted == list(nodes) else None,
                self.arenas.bytes(self.caches[feed.tree]),
                first + (passes - 1) * each,
                passes=passes,
                features=states,
            )
            answers.append(called.of(answer, place) if called else answer)
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
