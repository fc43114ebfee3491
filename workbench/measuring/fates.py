"""What became of each token of a server's answer, as far as it tells."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from decoders import Fate
from workbench.engines.record import Record, Speculation


def rebuilt(count: int, speculation: Speculation | None) -> list[str] | None:
    """The fate of each token, from the counts of each step.

    The prompt's pass gives one token. Each verification gives the draft tokens that it accepted,
    and one of the target: a correction if a draft token was refused, else a bonus.

    Args:
        count: number of tokens; the text may end within the last step
        speculation: what the server told

    Returns:
        None if steps are not told, or do not explain this many tokens
    """
    if speculation is None or not speculation.per_step:
        return None
    fates: list[str] = [Fate.SAMPLED]
    last = 1
    for drafted, accepted in speculation.per_step:
        own = Fate.BONUS if accepted == drafted else Fate.CORRECTED
        fates += [Fate.ACCEPTED] * accepted + [own if drafted else Fate.SAMPLED]
        last = accepted + 1
    return fates[:count] if len(fates) - last < count <= len(fates) else None


def arrived(record: Record, ids: Sequence[int] | None) -> list[int]:
    """For each token the number of the piece that brought it; [] if that is not known."""
    counts = [count for _, count in record.arrivals]
    if ids is None or None in counts:
        return []
    ends = list(accumulate(count or 0 for count in counts))
    pieces = [bisect_right(ends, place) for place in range(len(ids))]
    # The token that ended the text may come without a piece.
    return [min(piece, max(len(ends) - 1, 0)) for piece in pieces]
