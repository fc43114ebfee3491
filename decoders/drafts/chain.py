"""A chain of draft tokens.

Source:
    Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1, first half.
"""

from collections.abc import Generator

from decoders.drafts.draft import Draft, Draw
from decoders.request import Ask, Drawn, Request


def chain(request: Request, length: int) -> Generator[Ask, list[Drawn], Draft]:
    """At most `length` tokens of the draft model below the tip, each drawn after the one before."""
    draft = Draft(request.tip)
    steps = min(length, request.left - 1)
    for drawn in (yield request.draw("draft", request.tip, steps)) if steps else ():
        draft.draws.append(Draw(drawn.node, drawn.parent, drawn.token))
        draft.q[drawn.parent] = drawn.q
    return draft
