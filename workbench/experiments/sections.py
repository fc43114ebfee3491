"""The sections of a report, from which the page, HTML and Markdown are made."""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workbench.experiments.charts import NOTHING, draw
from workbench.experiments.formats import FORMATS
from workbench.experiments.notices import errors, notices
from workbench.experiments.plan import Part
from workbench.experiments.report import (
    Judged,
    Report,
    acceptance,
    beside,
    by_category,
    facts,
    judged,
    padding,
    table,
)  # fmt: skip
from workbench.show import tables
from workbench.show.quantities import FIGURES
from workbench.show.spread import MISSING
from workbench.show.tables import Table
from workbench.studies.text import counted

INTERVALS = "Brackets: 95% intervals by a paired bootstrap over prompts (or batches)."
VERDICTS = {
    "reproduced": "Reproduced",
    "not reproduced": "Not reproduced: here it is the other way round",
    "undecided": "Undecided: the difference's interval includes 0, or there are too few prompts",
    "not measured": "Not measured",
}
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


@dataclass(frozen=True)
class Figure:
    """A chart as HTML."""

    markup: str


# A paragraph, a list of sentences, a table or a chart.
Content = str | list[str] | Table | Figure


@dataclass(frozen=True)
class Section:
    title: str
    content: list[Content]


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
    if found.plan.notes:
        yield Section("Notes", [[*found.plan.notes]])
    if failures := errors(found):
        yield Section("Failures", [failures])
    yield Section("Measured on", [[f"{name}: {value}" for name, value in facts(found)]])


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
                [_sentence(one) for one in each if one.verdict == verdict],
            ]
    return Section("The papers' orderings", content)


def _sentence(one: Judged) -> str:
    return f"{one.ordering.says} ({one.ordering.source}). Here {one.words}."


def _part(found: Report, part: Part) -> Section:
    mine = [drawing for drawing in found.plan.drawings if drawing.part == part.name]
    drawn = [f for drawing in mine for f in draw(found, drawing)]
    drawn = [f for f in drawn if not (found.unfinished and NOTHING in f)]
    more = [make(found, part.name) for make in (padding, by_category, acceptance)]
    about = [part.about] if part.about else []
    return Section(
        part.name[:1].upper() + part.name[1:],
        [*about, table(found, part.name), INTERVALS, *filter(None, more), *map(Figure, drawn)],
    )


def as_markdown(content: list[Content], charts: bool = False) -> str:
    """A section's content as Markdown.

    Args:
        content: the content
        charts: keep the charts, as HTML
    """
    kept = [c for c in content if charts or not isinstance(c, Figure)]
    return "\n\n".join(text for c in kept if (text := _markdown(c)))


def _markdown(content: Content) -> str:
    if isinstance(content, list):
        return "\n".join(f"- {sentence}" for sentence in content)
    if isinstance(content, Table):
        return tables.markdown(content)
    return content.markup if isinstance(content, Figure) else content


def as_html(content: list[Content]) -> str:
    """A section's content as HTML, its charts last."""
    parts = []
    for c in content:
        if isinstance(c, list):
            items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in c)
            parts.append(f"<ul>{items}</ul>")
        elif not isinstance(c, Figure):
            parts.append(_printed(c) if isinstance(c, Table) else f"<p>{html.escape(c)}</p>")
    charts = "".join(c.markup for c in content if isinstance(c, Figure))
    return "".join(parts) + (f'<div class="wb-charts">{charts}</div>' if charts else "")


def _printed(found: Table) -> str:
    """A table; the style sheet greys the papers' columns, which are the even ones."""
    text, of_paper = tables.markup(found), [h.endswith(", paper") for h in found.heads[1:2]]
    return f'<div class="wb-printed">{text}</div>' if any(of_paper) else text
