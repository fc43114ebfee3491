"""How a request will probably go on (likely): what a pass in advance is told of it."""

from collections.abc import Callable, Sequence
from itertools import islice

from decoders.asks import Doubt, Guess
from decoders.distribution import Distribution
from decoders.engine.answers import Outlook
from decoders.randomness import SeededSource
from decoders.request import Request
from decoders.shapes import TokenId
from decoders.warp import MOST, NUCLEUS


def likely(
    request: Request,
    draw: Callable[[Distribution], TokenId],
    tokens: int,
    numbers: int,
    sought: Sequence[int],
    guess: Guess | None = None,
    doubt: Doubt | None = None,
) -> Outlook | None:
    """The outlook of a request; None if nobody can tell it.

    Args:
        request: the request
        draw: draws the next token of its open chain
        tokens, sought: see `Outlook`
        numbers: how many numbers it will need
        guess: of rounds, how their drafts are judged
        doubt: of rounds, when their drafts end early
    """
    warping = request.warping
    if tokens < 1 or request.penalties or not warping.usual or warping.top_k > MOST:
        return None
    # At temperature 0 nothing is drawn, but for a mixture of two models.
    chance = warping.temperature or (guess and guess.beyond)
    known = _next(request, draw, numbers) if chance else [0.0] * numbers
    if known is None:
        return None
    few = warping.top_k or (NUCLEUS if warping.cuts else 0)
    return Outlook(
        tokens, warping.temperature, few, bool(warping.top_k), warping.top_p, warping.min_p, known,
        tuple(request.end_tokens), sought, guess or ("", (), False),
        doubt or Doubt(),
    )  # fmt: skip


def _next(
    request: Request, draw: Callable[[Distribution], TokenId], count: int
) -> Sequence[float] | None:
    """The next numbers of the open chain, and after them those of the source, if both tell."""
    left = getattr(draw, "left", ())
    if not isinstance(request.source, SeededSource):
        return None
    return [*islice(left, count), *request.source.peek(max(0, count - len(left)))]
