"""A chain of draft tokens (speculative-decoding.txt, algorithm 1, first half)."""

from collections.abc import Generator

from decoders.drafts.draft import Draft, Draw
from decoders.request import Ask, Drawn, Request


def chain(request: Request, length: int) -> Generator[Ask, list[Drawn], Draft]:
    """Up to `length` tokens of the draft model, each drawn after the one before."""
    draft = Draft(request.tip)
    steps = min(length, request.left - 1)
    for drawn in (yield request.draw("draft", request.tip, steps)) if steps else ():
        draft.draws.append(Draw(drawn.node, drawn.parent, drawn.token))
        draft.q[drawn.parent] = drawn.q
    return draft
