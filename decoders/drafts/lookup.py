"""Drafts copied from text that exists already: prompt lookup and LLMA."""

from collections.abc import Generator, Iterable, Sequence

from decoders.drafts.draft import Draft, Draw
from decoders.reading import Reading
from decoders.request import Ask, Request
from decoders.shapes import TokenId


def certain(request: Request, tokens: Sequence[TokenId]) -> Draft:
    """A chain of these tokens below the tip, up to an end token or the length left to the answer.

    The tokens are certain, drawn from no distribution. So a rule tests each against a point mass,
    which is exact wherever they come from.
    """
    draft = Draft(request.tip)
    node = draft.root
    for token in tokens[: max(0, request.left - 1)]:
        child = request.tree.add(node, token)
        draft.draws.append(Draw(child, node, token))
        if token in request.end_tokens:
            break
        node = child
    return draft


class Lookup:
    """Proposes the tokens that followed an earlier occurrence of the output's last tokens.

    It reads the reference documents, then the prompt, then the output as it grows, each token once.

    Args:
        request: the request being decoded
        match: longest run of tokens to look up; shorter runs are tried down to 1
        copy: most tokens proposed
        first: take the first occurrence in reading order, as LLMA's code does, rather than the last

    Source:
        LLMA, Yang et al. 2023 (arXiv 2304.04487); prompt lookup, Saxena 2023.
    """

    def __init__(self, request: Request, match: int, copy: int, first: bool = False):
        self.match, self.copy, self.first = match, copy, first
        # From a run of tokens to a text, and the index after the run in it.
        self._seen: dict[tuple[TokenId, ...], tuple[list[TokenId], int]] = {}
        for reference in request.references:
            self._read([], reference)
        self._text: list[TokenId] = []

    def propose(self, request: Request) -> Generator[Ask, list[Reading], Draft]:
        """A chain of certain tokens; empty if nothing matches."""
        yield from ()  # asks no model
        tree = request.tree
        self._read(self._text, [tree.tokens[n] for n in tree.lineage(request.tip, len(self._text))])
        return certain(request, self._continuation())

    def _read(self, text: list[TokenId], tokens: Iterable[TokenId]) -> None:
        """Append tokens to a text, and record for each of them the runs that it follows."""
        for token in tokens:
            for n in range(1, min(self.match, len(text)) + 1):
                run = tuple(text[-n:])
                if not (self.first and run in self._seen):
                    self._seen[run] = text, len(text)
            text.append(token)

    def _continuation(self) -> list[TokenId]:
        for n in range(min(self.match, len(self._text)), 0, -1):
            match = self._seen.get(tuple(self._text[-n:]))
            if match:
                text, start = match
                copied = text[start : start + self.copy]
                # A match that reaches the end of the text continues with its own copy, so that a
                # loop is drafted whole.
                while text is self._text and len(copied) < self.copy:
                    copied += copied[: self.copy - len(copied)]
                return copied
        return []
