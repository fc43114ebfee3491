"""Drafts from counts: unigram and bigram tables, which cost next to nothing.

Source:
    Leviathan et al. 2023 (arXiv 2211.17192), section 3.6.
"""

from collections import Counter, defaultdict
from collections.abc import Generator, Iterable

import torch

from decoders.distribution import Distribution
from decoders.reading import Reading, Readings, held
from decoders.request import Ask, Request
from decoders.shapes import NodeId, Probs, TokenId


class NGram:
    """Smoothed counts of tokens and pairs in references, the prompt and the output so far.

    Unigram: q1(x) = (count(x) + s / V) / (tokens + s).
    Bigram: q2(x | y) = (count(y, x) + s q1(x)) / (count(y, .) + s).
    Tokens are drawn from the warped tables, as from every other model.

    Args:
        request: the request being decoded
        smoothing: s > 0, in counts
        pairs: whether to use the bigram table
    """

    def __init__(self, request: Request, smoothing: float, pairs: bool):
        self.smoothing, self.pairs = smoothing, pairs
        # The loop sets it for drafts without a model.
        assert request.vocabulary is not None
        self._tokens = torch.zeros(request.vocabulary, dtype=torch.float64)
        self._pairs: dict[TokenId, Counter[TokenId]] = defaultdict(Counter)
        for reference in request.references:
            self._count(reference, None)
        self._depth = 0
        self._last: TokenId | None = None

    def predict(
        self, request: Request, nodes: list[NodeId]
    ) -> Generator[Ask, list[Reading], list[Distribution]]:
        """The warped distribution of the token after each node."""
        yield from ()  # asks no model
        tree = request.tree
        new = [tree.tokens[n] for n in tree.lineage(request.tip, self._depth)]
        self._last = self._count(new, self._last)
        self._depth += len(new)
        prior = (self._tokens + self.smoothing / len(self._tokens)) / (
            self._tokens.sum() + self.smoothing
        )
        rows = torch.stack(
            [self._after(tree.tokens[n], prior) if self.pairs else prior for n in nodes]
        )
        return [request.warp(reading) for reading in Readings(rows.log(), held(request.warping))]

    def _after(self, token: TokenId, prior: Probs) -> Probs:
        row, followers = self.smoothing * prior, self._pairs[token]
        row[list(followers)] += torch.tensor(list(followers.values()), dtype=row.dtype)
        return row / (followers.total() + self.smoothing)

    def _count(self, tokens: Iterable[TokenId], last: TokenId | None) -> TokenId | None:
        """Count tokens that follow `last`; returns the last token counted."""
        for token in tokens:
            self._tokens[token] += 1
            if last is not None:
                self._pairs[last][token] += 1
            last = token
        return last
