"""A chain of tokens from the draft model (speculative-decoding.txt, algorithm 1, first half)."""

from collections.abc import Generator

from decoders.drafts.draft import Draft, Draw
from decoders.request import Ask, Request
from decoders.shapes import Logits


def chain(request: Request, length: int) -> Generator[Ask, Logits, Draft]:
    """Draw up to `length` tokens one after the other from the warped draft model; fewer where the text ends or the budget does."""
    draft = Draft(request.tip)
    node = draft.root
    for _ in range(min(length, request.left - 1)):
        q = request.warp((yield request.ask("draft", [node])))[0]
        token = request.source.draw(q)[0]
        draft.q[node] = q
        child = request.tree.add(node, token)
        draft.draws.append(Draw(child, node, token))
        node = child
        if token in request.end_tokens:
            break
    return draft
