"""The sections of a report, from which the page, HTML and Markdown are made."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from workbench.experiments.charts import NOTHING, draw
from workbench.experiments.formats import FORMATS
from workbench.experiments.plan import Part
from workbench.experiments.report import (
    Report,
    acceptance,
    beside,
    by_category,
    facts,
    judged,
    padding,
    table,
)
from workbench.experiments.section import Content, Figure, Section
from workbench.show.quantities import FIGURES
from workbench.show.spread import MISSING
from workbench.studies.text import counted

INTERVALS = "Brackets: 95% intervals by a paired bootstrap over prompts (or batches)."
VERDICTS = {
    "reproduced": "Reproduced",
    "not reproduced": "Not reproduced: here it is the other way round",
    "undecided": "Undecided: the difference's interval includes 0, or there are too few prompts",
    "not measured": "Not measured",
}
MARKS = {"reproduced": "✓ ", "not reproduced": "✗ ", "undecided": "? "}
ITEMS = "items: prompts, or batches, that were decoded; each timing counts"
PLACES = (
    "place 1, 2, ...: of the rounds whose draft reached this place, the share whose output grew "
    "beyond it"
)
ACCURACY = (
    "execution accuracy: whether both queries return the same rows of the set's database, counted "
    "as Spider's official script does by default: without DISTINCT in either query, and with the "
    "values that the model wrote"
)


def notices(found: Report) -> list[str]:
    """Sentences that a reader must know before reading the figures."""
    now, said = found.progress, []
    if now.miscounted:
        left = now.total - now.done
        then = f"{left} of {now.total} items still have to be run: resume the experiment"
        said.append(
            "An earlier version of the workbench took results of other prompts for items of this "
            "experiment, or left items out; each result now stands under its own prompt, and "
            f"{then if left else 'nothing is missing: replace reports made by that version'}."
        )
    return said


def errors(found: Report) -> list[str]:
    """One sentence for each kind of failure, with how often it happened."""
    counts: Counter[str] = Counter()
    for part in found.plan.names:
        names = found.names(part)
        for cell in found.of_part(part):
            for row in cell.rows.values():
                unscored = [
                    o.scores["why"] for o in row.outputs if o.scores and "score" not in o.scores
                ]
                whole = [*row.errors, *(f"an output has no score: {why}" for why in unscored)]
                counts.update(f"{part}, {names[cell.cell]}: {why}" for why in whole)
    return [f"{words} ({counted(count, 'time')})" for words, count in counts.items()]


def sections(found: Report) -> Iterator[Section]:
    """The sections of a report: notices, the papers' orderings, then each part and the rest.

    Parts without any measurement are left out.

    Args:
        found: the report

    Yields:
        the sections in order
    """
    if said := notices(found):
        yield Section("Please note", [said])
    parts = [part for part in found.plan.parts if found.begun(part.name)]
    if parts:
        yield from _measured(found, parts)
    told = {
        "Notes": [*found.plan.notes],
        "Failures": errors(found),
        "Measured on": [f"{name}: {value}" for name, value in facts(found)],
    }
    yield from (Section(title, [sentences]) for title, sentences in told.items() if sentences)


def _measured(found: Report, parts: Sequence[Part]) -> Iterator[Section]:
    if found.plan.orderings and (section := orderings(found)).content[1:]:
        yield section
    for part in parts:
        yield _part(found, part)
    content: list[Content] = []
    for printed in found.plan.printed:
        both = beside(found, printed)
        if not found.unfinished or any(here != MISSING for row in both.rows for here in row[2::2]):
            where = ", ".join(p for p in (printed.pair, printed.prompts, printed.device) if p)
            content += [f"{printed.source} (paper: {where})", both]
    if content:
        yield Section("Beside the papers", content)
    scorers = {
        FORMATS[c.asked["prompts"]].scorer for c in found.cells if c.asked["prompts"] in FORMATS
    }
    named: dict[str, list[str]] = {}
    for name, figure in FIGURES.items():
        named.setdefault(figure.meaning, []).append(name)
    *meanings, cache = [f"{', '.join(names)}: {means}" for means, names in named.items() if means]
    accuracy = [ACCURACY] if "spider" in scorers else []
    yield Section("What the figures mean", [[ITEMS, *meanings, PLACES, cache, *accuracy]])


def orderings(found: Report) -> Section:
    """The papers' orderings by verdict; those that may still be measured are only counted.

    Args:
        found: the report
    """
    each = judged(found)
    counts = {verdict: sum(one.verdict == verdict for one in each) for verdict in VERDICTS}
    later = found.unfinished and "not measured"
    words = ", ".join(
        f"{n} {verdict}{' yet' if verdict == later else ''}" for verdict, n in counts.items() if n
    )
    content: list[Content] = [f"{counted(len(each), 'ordering')} of the papers: {words}."]
    for verdict, heading in VERDICTS.items():
        if counts[verdict] and verdict != later:
            content += [
                f"{heading} ({counts[verdict]}):",
                [
                    f"{MARKS.get(verdict, '')}{one.ordering.says} ({one.ordering.source}). Here "
                    f"{one.words}."
                    for one in each
                    if one.verdict == verdict
                ],
            ]
    return Section("The papers' orderings", content)


def _part(found: Report, part: Part) -> Section:
    drawings = [drawing for drawing in found.plan.drawings if drawing.part == part.name]
    charts = [chart for drawing in drawings for chart in draw(found, drawing)]
    lengths = partial(by_category, name="tokens/call")
    more = [make(found, part.name) for make in (padding, by_category, lengths, acceptance)]
    unsaid = [*dict.fromkeys(c.unsaid for c in found.of_part(part.name) if c.unsaid)]
    content = [
        part.about,
        table(found, part.name),
        unsaid and f"Settings other than the library's defaults: {'; '.join(unsaid)}.",
        INTERVALS,
        *more,
        *(Figure(chart) for chart in charts if not (found.unfinished and NOTHING in chart)),
    ]
    return Section(part.name[:1].upper() + part.name[1:], [c for c in content if c])
