"""The outcome of a comparison in one line, and the mark of the fastest decoder.

Counted figures carry it: they are the same on every machine. The exact decoder with the fewest
passes is in it; others write another text, which no figure makes better.
"""

from collections.abc import Sequence

from decoders.settings import Law
from workbench.runs.figures import Row, number, quickest, rows, unsteady
from workbench.runs.record import Run
from workbench.runs.timing import disturbances
from workbench.show.laws import claim_in
from workbench.show.quantities import BY_NAME, greedy_disturbed, spread
from workbench.studies import schemes, text
from workbench.studies.settings import known, method_of

SHORTEST = 16  # tokens of a text from which passes are worth comparing
FASTER = 1.05  # times greedy
WORTH_SAYING = 1.2  # tokens per pass below which drafts are not worth a sentence
ROUGH = "Speeds are rough: {}."
BUSY, UNEVEN = "this machine is busy", "the timings differ"


def verdict(run: Run, settled: bool = True) -> str:
    """The outcome in one line; "" if there is nothing to tell.

    Args:
        run: the comparison
        settled: whether its timing is over; before that the line has no speed
    """
    lines = [row for row in rows(run.results) if row.first.error is None]
    exact = [row for row in lines if _drafts(row) and claim_in(run.settings, row.decoder).exact]
    best, says = _fewest(exact), ""
    if best is not None:
        same = "same text" if run.settings.get("temperature") == 0 else "same kind of text"
        says = f"{best.label}: the {same}, {_passes(best)}"
    elif (best := _fewest([row for row in lines if _drafts(row)])) is not None:
        says = f"{best.label}: {_passes(best)}, and not the large model’s own distribution"
    if best is None:
        return ROUGH.format(_rough(lines)) if settled and _rough(lines) else ""
    if not settled:
        return f"{says}."
    if why := _rough(lines):
        return f"{says}. {ROUGH.format(why)}"
    return f"{says}{_times(best)}."


def fastest(lines: Sequence[Row]) -> Row | None:
    """The row whose range of tokens/s lies above all others.

    None if ranges overlap or are not known, or if a timing was disturbed.
    """
    row, sure = quickest(lines)
    return row if sure and len(lines) > 1 else None


def why_not(lines: Sequence[Row]) -> str:
    if any(unsteady(row) for row in lines):
        return "speeds are rough"
    if any(len(row.results) < 2 and len(row.first.laps) < 2 for row in lines):
        return "each was timed once"
    return "the ranges of their timings overlap"


def marks(lines: Sequence[Row]) -> dict[str, list[str]]:
    """The mark of the fastest decoder; a likely text wins none, because loops are likely."""
    first = fastest(lines)
    return {row.decoder: ["fastest"] if row is first else [] for row in lines}


def _drafts(row: Row) -> bool:
    """Whether its passes can be fewer than its tokens, and the text is long enough to tell."""
    if not known(row.decoder):
        return False
    drafts = method_of(row.decoder).law != Law.BEAM_SAMPLING and row.decoder not in PLAIN
    return drafts and (number(row.first, "new_tokens") or 0) >= SHORTEST


PLAIN = ("greedy", "multinomial", "beam_search", "beam_sampling")


def _fewest(lines: Sequence[Row]) -> Row | None:
    """The row with most tokens per pass, if that is worth a sentence."""
    best = max(lines, key=_efficiency, default=None)
    return best if best is not None and _efficiency(best) >= WORTH_SAYING else None


def _efficiency(row: Row) -> float:
    return number(row.first, "block_efficiency") or 0.0


def _passes(row: Row) -> str:
    tokens, passes = (int(number(row.first, name) or 0) for name in ("new_tokens", "target_calls"))
    return f"{text.counted(passes, 'pass', 'passes')} instead of {tokens:,}"


def _times(row: Row) -> str:
    """ ", 1.6 times as fast here", if greedy ran beside it."""
    ratio = spread(BY_NAME["x_greedy"], row)
    if ratio is None or row.decoder == schemes.BASELINE:
        return ""
    if ratio.mean < FASTER:
        return ", and no faster here"
    return f", {ratio.mean:.1f} times as fast here"


def _rough(lines: Sequence[Row]) -> str:
    """The reason why speeds are rough; "" if they are not."""
    if any(disturbances(r) for row in lines for r in row.results) or any(
        greedy_disturbed(row) for row in lines
    ):
        return BUSY
    return UNEVEN if any(unsteady(row) for row in lines) else ""
