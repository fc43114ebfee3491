"""What a report says, in its order: titles, each with paragraphs, lists, tables and figures. The page, HTML and Markdown are made of it."""

import html
from collections.abc import Iterator
from dataclasses import dataclass

from workbench.experiments.charts import draw
from workbench.experiments.plan import Part
from workbench.experiments.report import (
    Judged,
    Report,
    acceptance,
    beside,
    by_category,
    errors,
    facts,
    judged,
    padding,
    table,
)  # fmt: skip
from workbench.show import tables
from workbench.show.tables import Table
from workbench.studies.text import counted

INTERVALS = "Brackets: 95% intervals by a paired bootstrap over prompts (or batches)."
VERDICTS = {
    "reproduced": "Reproduced",
    "not reproduced": "Not reproduced: the other way round here",
    "undecided": "Undecided: the interval of the difference holds 0, or there are too few prompts",
    "not measured": "Not measured",
}
MEANINGS = (
    "items: prompts, or batches, that were decoded; one that is timed twice counts twice",
    "x greedy: tokens/s over those of greedy decoding, which took its turn on the same prompts",
    "perplexity: of the outputs under the target's own distribution, without temperature, top-k and top-p; lower is likelier",
    "J/token: energy, if the machine has a meter",
    "tokens/call: new tokens per pass of the target; tokens/round the same per round",
    "accepted/tested, accepted/drafted: draft tokens kept, of those that the rule tested, and of all that were drafted",
    "place 1, 2, ...: of the rounds that drafted so far, the share whose output grew beyond that place of the draft",
    "MB cache: the most that keys and values took",
)


@dataclass(frozen=True)
class Figure:
    """A chart as HTML."""

    markup: str


Content = str | list[str] | Table | Figure  # a paragraph, a list of sentences, ...


@dataclass(frozen=True)
class Section:
    title: str
    content: list[Content]


def sections(found: Report) -> Iterator[Section]:
    """The papers' orderings first, then each part."""
    if found.plan.orderings:
        yield orderings(found)
    for part in found.plan.parts:
        yield _part(found, part)
    if found.plan.printed:
        content: list[Content] = []
        for printed in found.plan.printed:
            where = ", ".join(p for p in (printed.pair, printed.prompts, printed.device) if p)
            content += [f"{printed.source} (paper: {where})", beside(found, printed)]
        yield Section("Beside the papers", content)
    yield Section("What the figures mean", [[*MEANINGS]])
    if found.plan.notes:
        yield Section("Notes", [[*found.plan.notes]])
    if failures := errors(found):
        yield Section("Failures", [failures])
    yield Section("Measured on", [[f"{name}: {value}" for name, value in facts(found)]])


def orderings(found: Report) -> Section:
    """Each ordering of the papers, by what the rows say of it."""
    each = judged(found)
    counts = {verdict: sum(one.verdict == verdict for one in each) for verdict in VERDICTS}
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    content: list[Content] = [f"{counted(len(each), 'ordering')} of the papers: {words}."]
    for verdict, heading in VERDICTS.items():
        if counts[verdict]:
            content += [f"{heading} ({counts[verdict]}):", [_sentence(one) for one in each if one.verdict == verdict]]
    return Section("The papers' orderings", content)


def _sentence(one: Judged) -> str:
    return f"{one.ordering.says} ({one.ordering.source}). Here {one.words}."


def _part(found: Report, part: Part) -> Section:
    drawn = [Figure(f) for drawing in found.plan.drawings if drawing.part == part.name for f in draw(found, drawing)]
    more = [make(found, part.name) for make in (padding, by_category, acceptance)]
    about = [part.about] if part.about else []
    return Section(
        part.name[:1].upper() + part.name[1:], [*about, table(found, part.name), INTERVALS, *filter(None, more), *drawn]
    )


def as_markdown(content: list[Content], charts: bool = False) -> str:
    """charts  whether they are kept, as HTML"""
    kept = [c for c in content if charts or not isinstance(c, Figure)]
    return "\n\n".join(text for c in kept if (text := _markdown(c)))


def _markdown(content: Content) -> str:
    if isinstance(content, list):
        return "\n".join(f"- {sentence}" for sentence in content)
    if isinstance(content, Table):
        return tables.markdown(content)
    return content.markup if isinstance(content, Figure) else content


def as_html(content: list[Content]) -> str:
    parts = []
    for c in content:
        if isinstance(c, list):
            parts.append(f"<ul>{''.join(f'<li>{html.escape(sentence)}</li>' for sentence in c)}</ul>")
        elif not isinstance(c, Figure):
            parts.append(_printed(c) if isinstance(c, Table) else f"<p>{html.escape(c)}</p>")
    charts = "".join(c.markup for c in content if isinstance(c, Figure))
    return "".join(parts) + (f'<div class="wb-charts">{charts}</div>' if charts else "")


def _printed(found: Table) -> str:
    """The papers' columns, which are the even ones, are grey."""
    text = tables.markup(found)
    return f'<div class="wb-printed">{text}</div>' if found.heads[1:2] and found.heads[1].endswith(", paper") else text
