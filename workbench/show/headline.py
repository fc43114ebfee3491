"""The outcome of a comparison in sentences.

They name the decoders with the fewest passes, the highest speed and the likeliest text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.runs.estimates import Row, label, number, rows, unsteady
from workbench.runs.ranking import leaders, quickest
from workbench.runs.record import Run
from workbench.show.laws import by_chance, claim_in
from workbench.show.quantities import BY_NAME, significant
from workbench.show.spread import MISSING, UNSURE, greedy_disturbed, spread
from workbench.studies import schemes, text

WORTH_SAYING = 1.2  # tokens per pass below which drafts are not worth a sentence
SPEED, PERPLEXITY, PER_PASS = (
    BY_NAME[name] for name in ("speed", "perplexity", "block_efficiency")
)


def headline(run: Run) -> list[str]:
    """The sentences, most telling first; [] if there is nothing to tell."""
    found = [row for row in rows(run.results) if row.first.error is None]
    sentences = [_saved(found)]
    if (first := fastest(found)) is not None:
        sentences.append(f"Fastest here: {first.label}, {_speed(first)}.")
    elif len(found) > 1:
        unsure = f"No decoder is clearly the fastest here: {why_not(found)}."
        sentences.append(_ahead(found) or unsure)
    best = likeliest(found, run.settings)
    if best is not None and (value := spread(PERPLEXITY, best)) is not None:
        sentences.append(
            f"Likeliest text: {best.label} (perplexity {PERPLEXITY.show(value.mean)}, where 1 "
            "would be certain)."
        )
    for group in by_chance(run.settings, [row.decoder for row in found]):
        sentences.append(
            f"{', '.join(map(label, group[:-1]))} and {label(group[-1])} draw from the same "
            "distribution: differences between their texts are due to chance."
        )
    return [sentence for sentence in sentences if sentence]


def fastest(found: Sequence[Row]) -> Row | None:
    """The row whose range of tokens/s lies above all others.

    None if ranges overlap or are not known, or if a timing was disturbed.
    """
    row, sure = quickest(found)
    return row if sure and len(found) > 1 else None


def why_not(found: Sequence[Row]) -> str:
    """The reason why none of them is clearly the fastest."""
    if any(unsteady(row) for row in found):
        return f"timings marked {UNSURE} cannot be trusted"
    if any(len(row.results) < 2 and len(row.first.laps) < 2 for row in found):
        return "each was timed once"
    return "the ranges of their timings overlap"


def likeliest(found: Sequence[Row], settings: Mapping[str, Any]) -> Row | None:
    """The row with the lowest perplexity.

    None if another one may be as low by chance: one of the same law, or within its deviation.
    """
    figures = [(row, value) for row in found if (value := spread(PERPLEXITY, row)) is not None]
    if len(figures) < 2:
        return None
    (best, lowest), *others = sorted(figures, key=lambda each: each[1].mean)
    if any(lowest.mean + lowest.above >= value.mean - value.below for _, value in others):
        return None
    laws = [claim_in(settings, row.decoder).law for row in found]
    own = claim_in(settings, best.decoder).law
    return None if own and laws.count(own) > 1 else best


def marks(found: Sequence[Row], settings: Mapping[str, Any]) -> dict[str, list[str]]:
    """The marks that each decoder won: "fastest", "likeliest text"."""
    won: dict[str, list[str]] = {row.decoder: [] for row in found}
    for mark, row in (("fastest", fastest(found)), ("likeliest text", likeliest(found, settings))):
        if row is not None:
            won[row.decoder].append(mark)
    return won


def _ahead(found: Sequence[Row]) -> str:
    """The sentence on those that share the first place, if each is surely faster than greedy."""
    first, ratios = leaders(found), []
    for row in first:
        ratio = spread(BY_NAME["x_greedy"], row)
        if unsteady(row) or greedy_disturbed(row) or row.decoder == schemes.BASELINE:
            return ""
        if ratio is None or ratio.ends is None or ratio.ends[0] <= 1:
            return ""
        ratios.append((ratio.mean, row.label))
    each = [f"{name} {ratio:.2f} times" for ratio, name in sorted(ratios, reverse=True)]
    return f"Faster than greedy: {', '.join(each)}; their ranges overlap." if each else ""


def _saved(found: Sequence[Row]) -> str:
    best = max(
        [
            row
            for row in found
            if number(row.first, "target_calls") and number(row.first, "new_tokens")
        ],
        key=lambda row: number(row.first, "block_efficiency") or 0,
        default=None,
    )
    if best is None or (number(best.first, "block_efficiency") or 0) < WORTH_SAYING:
        return ""
    tokens, passes = (int(number(best.first, name) or 0) for name in ("new_tokens", "target_calls"))
    return (
        f"{best.label} wrote {text.counted(tokens, 'token')} in "
        f"{text.counted(passes, 'pass', 'passes')} of the large model instead of {tokens:,}."
    )


def _speed(row: Row) -> str:
    ratio, own = spread(BY_NAME["x_greedy"], row), spread(SPEED, row)
    words = f"{significant(own.mean) if own else MISSING} tokens/s"
    if ratio is None or row.decoder == schemes.BASELINE:
        return words
    return f"{words}, {ratio.mean:.2f} times greedy"
