"""A draft model with a tokenizer of its own: a tree of its own tokens grows beside each request's tree (Translated)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from decoders.engine.answer import Answer, Wants, of_one_pass
from decoders.engine.branches import PlainEngine
from decoders.engine.model import Engine, PackedModel
from decoders.engine.plain import PlainModel
from decoders.engine.translation import Translation
from decoders.shapes import NodeId
from decoders.tree import TokenTree


class Translated:
    """A prepared draft model, read and asked in the target's tokens.

    model, translation   what it was made of;   positions  None: after its last position it proposes all shared tokens alike
    row_bytes    bytes of cache that one token of the target takes at most
    Everything else is the model's.
    """

    positions = None

    def __init__(self, inner: PackedModel | PlainModel, translation: Translation):
        self.inner, self.translation = inner, translation
        self.vocabulary = translation.size
        self.row_bytes = inner.row_bytes * translation.longest

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Shadow:
    """A request's tree in the draft's tokens: each node there has a chain of nodes here, the last of which stands for it."""

    def __init__(self, tree: TokenTree, translation: Translation):
        self.source, self.translation, self.commits = tree, translation, tree.commits
        prompt = [translation.read(token) for token in tree.tokens[: tree.prompt_length]]
        self.tree = TokenTree([token for tokens in prompt for token in tokens])
        self.last: dict[NodeId, NodeId] = {}
        end = -1
        for node, tokens in enumerate(prompt):
            end += len(tokens)
            self.last[node] = end

    def follow(self) -> None:
        """Grow and drop what the request's tree grew and dropped since."""
        source = self.source
        live = [*source.trunk, *source.tail] if self.commits != source.commits else source.tail
        for node in live:
            if node not in self.last:
                self.last[node] = self._grow(
                    self.last[source.parents[node]], self.translation.read(source.tokens[node])
                )
        if self.commits != source.commits:
            self.commits = source.commits
            self.tree.keep([self.last[node] for node in (source.trunk[-1], *source.tail)])
            self.last = {node: self.last[node] for node in (*source.trunk, *source.tail)}

    def _grow(self, end: NodeId, tokens: Sequence[int]) -> NodeId:
        """Nodes of their own, also if another node's chain begins alike: each is asked about once."""
        tree = self.tree
        for token in tokens:
            tree.tokens.append(token)
            tree.parents.append(end)
            tree.depths.append(tree.depths[end] + 1)
            end = len(tree.tokens) - 1
            tree.tail.append(end)
        return end


class TranslatedEngine:
    """Passes of a translated draft, over the trees of its own tokens; the interface of `Engine`."""

    def __init__(self, model: Translated, inner: Engine | PlainEngine):
        self.model, self.inner = model, inner
        self._shadows: dict[TokenTree, Shadow] = {}

    def admit(self, tree: TokenTree, rows: int) -> bool:
        shadow = Shadow(tree, self.model.translation)
        if not self.inner.admit(shadow.tree, rows):
            return False
        self._shadows[tree] = shadow
        return True

    def release(self, tree: TokenTree) -> None:
        if (shadow := self._shadows.pop(tree, None)) is not None:
            self.inner.release(shadow.tree)

    def rows_of(self, tree: TokenTree) -> int:
        return self.inner.rows_of(self._shadows[tree].tree)

    def run(self, wants: Wants, chunk: int | None = None) -> list[Answer]:
        """As `Engine.run`, in the target's tokens. Nodes after the draft's last position get logits 0 for all shared tokens: any
        proposal is valid whose distribution is known."""
        asked = []
        for tree, nodes in wants:
            shadow = self._shadows[tree]
            shadow.follow()
            asked.append([n for n in nodes if self._fits(shadow, n)])
        inner = [
            (self._shadows[tree].tree, [self._shadows[tree].last[n] for n in nodes])
            for (tree, _), nodes in zip(wants, asked, strict=True)
            if nodes
        ]
        answers = iter(self.inner.run(inner, chunk) if inner else ())
        return of_one_pass(
            [
                self._answer(tree, nodes, fitting, next(answers) if fitting else None)
                for (tree, nodes), fitting in zip(wants, asked, strict=True)
            ]
        )

    def _fits(self, shadow: Shadow, node: NodeId) -> bool:
        positions = self.model.inner.positions
        return positions is None or shadow.tree.depths[shadow.last[node]] < positions

    def _answer(self, tree: TokenTree, nodes: Sequence[NodeId], asked: list[NodeId], answer: Answer | None) -> Answer:
        translation, inner = self.model.translation, self.model.inner
        dtype = torch.float64 if inner.dtype == torch.float64 else torch.float32
        own = torch.zeros(len(nodes), inner.vocabulary, dtype=dtype, device=inner.device)
        if answer is None:
            answer = Answer(own, None, self.inner.rows_of(self._shadows[tree].tree) * inner.row_bytes, 0, passes=0)
        elif answer.part is None:
            return answer
        else:
            own[[nodes.index(n) for n in asked]] = answer.rows[answer.part]
        return replace(answer, rows=translation.over_target(own), part=slice(0, len(nodes)))
