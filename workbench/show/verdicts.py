"""The verdicts of draws on each decoder's law, in sentences.

They tell how far off the draws are, how unusual that is, and what the seeds have to do with it.
"""

import html
import math

from workbench.runs.draws import (
    CONTROL,
    LEVEL,
    MOST,
    SIMULATED,
    SOUGHT,
    Finding,
    findings,
    grouped,
    seeds,
)
from workbench.runs.figures import label
from workbench.runs.record import Run
from workbench.show.looks import visible
from workbench.studies.text import counted

LEGEND = (
    "Each token shows how many draws continue with it; the target’s expected count is in brackets."
)
DEFINED = "Plain sampling draws from the target by definition"


def headline(run: Run) -> str:
    """The verdicts as HTML, with a link to the proof."""
    each = "".join(f"<li>{html.escape(words)}</li>" for words in verdicts(run))
    link = (
        '<nav class="wb-jump" aria-label="On this page"><a href="#draw-proof">How they are '
        "compared, and what is proved</a></nav>"
    )
    after = _paragraph(reach(run)) + (_paragraph(LEGEND) if run.exact else "")
    return (
        f'<div class="wb wb-verdicts">{_paragraph(shared(run))}<ul>{each}</ul>{after}{link}</div>'
        if each
        else ""
    )


def _paragraph(words: str) -> str:
    return f'<p class="says">{html.escape(words)}</p>' if words else ""


def sentences(run: Run) -> list[str]:
    """All of it as plain text."""
    return [words for words in (shared(run), *verdicts(run), reach(run)) if words]


def verdicts(run: Run) -> list[str]:
    """A sentence for each decoder, or one that says why nothing is compared."""
    if not run.results:
        return []
    if run.settings.get("temperature", 1.0) == 0:
        return [
            "At temperature 0 nothing is left to chance: each decoder writes one text, and there "
            "is nothing to compare."
        ]
    return [f"{label(decoder)}: {words}" for decoder, words in each(run).items()]


def each(run: Run) -> dict[str, str]:
    """The verdict on each decoder's draws."""
    found = {each.decoder: each for each in findings(run)}
    return {decoder: in_words(each, found.get(CONTROL)) for decoder, each in found.items()}


def in_words(found: Finding, control: Finding | None) -> str:
    texts = counted(found.texts, "draw")
    what, which = "the target", texts
    if found.compared == "first step":
        what, which = (
            "one step of beam sampling",
            f"the {counted(found.draws, 'first beam')} of {texts}",
        )
    if not found.draws:
        return f"{texts.capitalize()}: too few to compare with {what}."
    if found.distance is None:
        return (
            f"{texts.capitalize()}: no first tokens of {what} are likely enough to be compared, or "
            "only one text is."
        )
    far = (
        f"total variation {found.distance:.3f} ({found.usual:.3f} is usual), further off than "
        f"{further(found)}"
    )
    wrote = (
        f"seed {found.seed} wrote “{visible(found.never)}”, which the target never writes "
        "(probability 0)"
    )
    if found.p is None:
        also = f" {wrote[0].upper()}{wrote[1:]}." if found.never else ""
        return f"Does not promise the target's distribution; {texts} have {far}.{also}"
    if found.unlike:
        proof = f"{wrote}: one such text is proof."
        why = proof if found.never else f"p < {LEVEL:.4f}, however often one looks."
        says = f"Unlike {what}: {why} The {which.removeprefix('the ')} have {far}."
        suspect = f" {DEFINED}: suspect the models or the seeds first."
        return says + (suspect if found.decoder == CONTROL else "")
    return f"No difference from {what} shown by {which}: {far}.{_unusual(found, control)}"


def _unusual(found: Finding, control: Finding | None) -> str:
    """A remark on draws that are further off than most, without being proof."""
    if not _odd(found):
        return ""
    if found.decoder == CONTROL:
        return f" {DEFINED}: these seeds are unlucky."
    if found.compared == "target" and control is not None and _odd(control):
        return " So is plain sampling with these seeds."
    return " Chance or a fault: other seeds will tell."


def _odd(found: Finding) -> bool:
    return found.nearer is not None and found.nearer >= MOST


def further(found: Finding) -> str:
    """The share of honest samples that are nearer, rounded down: "98% of honest samples"."""
    share = found.nearer or 0.0
    if share == 1:
        return f"all of {SIMULATED:,} honest samples"
    tenths = math.floor(1000 * share) / 10
    return f"{tenths if tenths >= 99 else math.floor(tenths):g}% of honest samples"


def shared(run: Run) -> str:
    """The seeds that the decoders have in common, and the control among them."""
    if not run.results or run.settings.get("temperature", 1.0) == 0:
        return ""
    groups = grouped(run)
    alike = len({tuple(seeds(results)) for results in groups.values()}) == 1
    ranges = " and ".join(f"{each.start} to {each.stop - 1}" for each in seeds(run.results))
    control = (
        "Plain sampling is the control."
        if CONTROL in groups
        else "Tick plain sampling for a control: it shows what these seeds do to an exact sampler."
    )
    if len(groups) == 1:
        return f"Seeds {ranges}." if CONTROL in groups else f"Seeds {ranges}. {control}"
    who, few = (
        ("All share seeds", "") if alike else ("All draw with seeds", ", some with fewer of them")
    )
    return (
        f"{who} {ranges}{few}. If the seeds are unlucky, all {len(groups)} look wrong together. "
        f"{control}"
    )


def reach(run: Run) -> str:
    """How reliable a verdict is, and the number of draws missing until there will be one.

    It is "" if no decoder claims a law.
    """
    claims = [found for found in findings(run) if found.p is not None and found.needed is not None]
    if not claims:
        return ""
    most = max(claims, key=_missing)
    missing, enough = _missing(most), most.texts + _missing(most)
    have = f"you have {most.texts:,}" + ("." if missing else ", which is enough.")
    return (
        f"A correct decoder is wrongly flagged at most once in {1 / LEVEL:,.0f} runs, even if you "
        f"keep drawing. To notice an error of {SOUGHT:g} you need about {enough:,} draws; {have}"
    )


def _missing(found: Finding) -> int:
    return max(0, math.ceil((found.needed or 0) * found.texts / found.draws) - found.texts)
