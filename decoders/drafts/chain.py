"""A chain of tokens from the draft model (speculative-decoding.txt, algorithm 1, first half)."""

from collections.abc import Generator

from decoders.drafts.draft import Draft
from decoders.drafts.tree import tree
from decoders.request import Ask, Request
from decoders.shapes import Logits


def chain(request: Request, length: int) -> Generator[Ask, Logits, Draft]:
    """Up to `length` tokens drawn one after the other from the warped draft model: a tree without branches."""
    return tree(request, (1,) * length)
