"""A draft model with another tokenizer than the target's (Translated).

A tree of the draft's tokens grows beside each request's tree.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch

from decoders.engine.answers import Answer, of_one_pass
from decoders.engine.models.packed import PackedModel
from decoders.engine.models.plain import PlainModel
from decoders.engine.models.translation import Translation
from decoders.engine.protocols import Layers, Passes, Wants
from decoders.errors import InputError
from decoders.shapes import NodeId
from decoders.tree import TokenTree


class Translated:
    """A prepared draft model that reads and answers in the target's tokens.

    Everything that is not listed here is the model's.

    Args:
        inner: the prepared model
        translation: the translation between the two vocabularies

    Attributes:
        positions: None, because after its last position it proposes all shared tokens alike
        vocabulary: V, that of the target
        row_bytes: the most bytes of cache for one token of the target
    """

    positions = None

    def __init__(self, inner: PackedModel | PlainModel, translation: Translation):
        self.inner, self.translation = inner, translation
        self.vocabulary = translation.size
        self.row_bytes = inner.row_bytes * translation.longest

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def engine(self, rows: int = 0, most_rows: int | None = None) -> Passes:
        return TranslatedPasses(
            self, self.inner.engine(rows, most_rows and most_rows * self.translation.longest)
        )

    def follow(self) -> bool:
        return self.inner.follow()

    def refuse_features(self, layers: Layers) -> None:
        raise InputError(
            f"The {self.inner.name} reads its own tokens, so it has no hidden states of the "
            "target's."
        )


class Shadow:
    """A request's tree in the draft's tokens.

    Each node of the request's tree has a chain of nodes here, the last of which stands for it.
    """

    def __init__(self, tree: TokenTree, translation: Translation):
        self.source, self.translation, self.commits = tree, translation, tree.commits
        prompt = [translation.read(token) for token in tree.tokens[: tree.prompt_length]]
        self.tree = TokenTree([token for tokens in prompt for token in tokens])
        self.last = {node: end - 1 for node, end in enumerate(accumulate(map(len, prompt)))}

    def follow(self) -> None:
        """Grow and drop what the request's tree has grown and dropped since the last call."""
        source, tree = self.source, self.tree
        live = [*source.trunk, *source.tail] if self.commits != source.commits else source.tail
        for node in live:
            if node in self.last:
                continue
            # A chain of new nodes even if another chain begins alike: each is asked about once.
            end = self.last[source.parents[node]]
            for token in self.translation.read(source.tokens[node]):
                tree.tokens.append(token)
                tree.parents.append(end)
                tree.depths.append(tree.depths[end] + 1)
                end = len(tree.tokens) - 1
                tree.tail.append(end)
            self.last[node] = end
        if self.commits != source.commits:
            self.commits = source.commits
            tree.keep([self.last[node] for node in (source.trunk[-1], *source.tail)])
            self.last = {node: self.last[node] for node in live}


class TranslatedPasses(Passes):
    """Passes of a translated draft over the trees of its own tokens.

    Args:
        model: the translated draft
        inner: the passes of its model
    """

    def __init__(self, model: Translated, inner: Passes):
        self.model, self.inner = model, inner
        self._shadows: dict[TokenTree, Shadow] = {}

    def admit(self, tree: TokenTree, rows: int) -> bool:
        shadow = Shadow(tree, self.model.translation)
        admitted = self.inner.admit(shadow.tree, rows)
        if admitted:
            self._shadows[tree] = shadow
        return admitted

    def release(self, tree: TokenTree) -> None:
        if (shadow := self._shadows.pop(tree, None)) is not None:
            self.inner.release(shadow.tree)

    def rows_of(self, tree: TokenTree) -> int:
        return self.inner.rows_of(self._shadows[tree].tree)

    def run(self, wants: Wants, chunk: int | None = None, features: Layers = ()) -> list[Answer]:
        """Run a pass and answer in the target's tokens.

        Nodes after the draft's last position get logits 0 for all shared tokens: a proposal is
        valid if its distribution is known.
        """
        asked, positions = [], self.model.inner.positions
        for tree, nodes in wants:
            shadow = self._shadows[tree]
            shadow.follow()
            asked.append(
                [
                    n
                    for n in nodes
                    if positions is None or shadow.tree.depths[shadow.last[n]] < positions
                ]
            )
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

    def _answer(
        self, tree: TokenTree, nodes: Sequence[NodeId], asked: list[NodeId], answer: Answer | None
    ) -> Answer:
        translation, inner = self.model.translation, self.model.inner
        dtype = torch.float64 if inner.dtype == torch.float64 else torch.float32
        own = torch.zeros(len(nodes), inner.vocabulary, dtype=dtype, device=inner.device)
        if answer is None:
            answer = Answer(own, None, self.rows_of(tree) * inner.row_bytes, 0, passes=0)
        elif answer.part is None:
            return answer
        else:
            own[[nodes.index(n) for n in asked]] = answer.rows[answer.part]
        return replace(answer, rows=translation.over_target(own), part=slice(0, len(nodes)))
