"""A chain of draft tokens (speculative-decoding.txt, algorithm 1, first half)."""

from collections.abc import Generator

from decoders.drafts.draft import Draft
from decoders.drafts.tree import Predict, draft_model, tree
from decoders.reading import Reading
from decoders.request import Ask, Request


def chain(request: Request, length: int, predict: Predict = draft_model) -> Generator[Ask, list[Reading], Draft]:
    """Up to `length` tokens, each drawn after the one before: a tree without branches."""
    return tree(request, (1,) * length, predict)
