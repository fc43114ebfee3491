"""A report: an experiment's table, sections and charts; as Markdown, HTML and CSV of all rows."""

import html
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go
from pydantic import TypeAdapter

from decoders.process import assets
from workbench.experiments import figures
from workbench.experiments.journal import NEXT_TIMING, CellRows, ExperimentProgress, Journal
from workbench.experiments.plan import Drawing, Ordering, Plan, Printed, Sweep, parse
from workbench.experiments.sets import FORMATS
from workbench.runs.record import Result
from workbench.show import plots, tables
from workbench.show.looks import look, look_of
from workbench.show.quantities import FIGURES, MISSING, significant
from workbench.show.view import as_csv, figure_html, frame
from workbench.studies.settings import WARPING, counted


@dataclass(frozen=True)
class OrderingHere:
    """An ordering of a paper, and what became of it here.

    Attributes:
        verdict: "reproduced", "not reproduced", "undecided" or "not measured"
        says: the claim in words
        source: the paper, with its table or section
        words: the figures here, and their difference
    """

    verdict: str
    says: str
    source: str
    words: str


@dataclass(frozen=True)
class Report:
    """An experiment with all its rows.

    Attributes:
        name: name of its files
        plan: its plan
        progress: its progress
        environment: workers, pairs, code and sets that it ran on
        cells: all cells with their rows, in order
    """

    name: str
    plan: Plan
    progress: ExperimentProgress
    environment: dict[str, Any]
    cells: Sequence[CellRows]

    def of_part(self, part: str) -> list[CellRows]:
        return [cell for cell in self.cells if cell.part == part]

    def begun(self, part: str) -> list[CellRows]:
        return [cell for cell in self.of_part(part) if cell.rows]

    @property
    def unfinished(self) -> bool:
        return self.progress.done < self.progress.total

    def varied(self, part: str) -> list[str]:
        """Those of pair, set and seed of which a part has several."""
        cells, keys = self.of_part(part), ("pair", "prompts", "seed")
        return [key for key in keys if len({cell.spec[key] for cell in cells}) > 1]

    def names(self, part: str) -> dict[str, str]:
        """For each cell of a part its label, with the pair, set or seed if the part has several."""
        keys = self.varied(part)
        return {
            c.cell: ", ".join([c.label, *(_value(c, key) for key in keys)])
            for c in self.of_part(part)
        }

    def figure(
        self, name: str, cell: CellRows, items: Sequence[int] | None = None
    ) -> figures.Interval | None:
        return figures.figure(name, cell, figures.greedy_of(cell, self.cells), items)


def _value(cell: CellRows, key: str) -> str:
    return f"seed {cell.spec[key]}" if key == "seed" else str(cell.spec[key])


def report(journal: Journal, id: str) -> Report:
    """The report of an experiment.

    Raises:
        InputError: if there is no such experiment
    """
    request, environment = journal.experiment(id)
    plan = parse(request.plan, request.file)
    return Report(f"{plan.name}-{id}", plan, journal.progress(id), environment, journal.cells(id))


def table(report: Report, part: str) -> tables.Table:
    """A row for each cell of a part that has begun; figures that no cell has are left out."""
    cells, keys = report.begun(part), report.varied(part)
    every = {name: [report.figure(name, cell) for cell in cells] for name in FIGURES}
    columns = {name: column for name, column in every.items() if any(column)}
    scores = {FORMATS[c.spec["prompts"]].scorer for c in cells if c.spec["prompts"] in FORMATS}
    score = figures.SCORE_NAMES.get(scores.pop(), "score") if len(scores) == 1 else "score"
    rows = []
    for i, cell in enumerate(cells):
        failed = sum(bool(row.errors) for row in cell.rows.values())
        done = f"{len(cell.rows)}" + (f", {failed} failed" if failed else "")
        shared = [str(cell.spec[key]) for key in keys]
        values = (shown(column[i], name) for name, column in columns.items())
        rows.append([cell.label, *shared, done, *values])
    heads = ["decoder", *keys, "items", *(score if n == "score" else n for n in columns)]
    return tables.Table(heads, rows)


def shown(interval: figures.Interval | None, name: str) -> str:
    """ "1.62 (1.55 to 1.70)"; "–" if there is none."""
    if interval is None:
        return MISSING
    text = significant(interval.value)
    if not name or not FIGURES[name].ranged or interval.low == interval.high:
        return text
    return f"{text} ({significant(interval.low)} to {significant(interval.high)})"


def by_category(report: Report, part: str, name: str) -> tables.Table | None:
    """A figure of each cell by category; None if the prompts have none."""
    cells, called, rows = report.begun(part), report.names(part), []
    names = sorted({category for cell in cells for category in figures.categories(cell)})
    if len(names) < 2 or len(names) > 20:
        return None
    for cell in cells:
        items = figures.categories(cell)
        values = (report.figure(name, cell, items.get(each, [])) for each in names)
        rows.append([called[cell.cell], *(shown(value, name) for value in values)])
    return tables.Table([f"{name} by category", *names], rows)


def beside(report: Report, printed: Printed) -> tables.Table:
    cells, rows = list(report.cells), []
    for key, wanted in (("prompts", printed.prompts), ("pair", printed.pair)):
        cells = [c for c in cells if c.spec[key] == wanted] or cells
    for label, values in printed.rows.items():
        ours = next((c for c in cells if c.label == label), None) or next(
            (c for c in cells if c.spec["decoder"] == label), None
        )
        rows.append([label])
        for name, value in zip(printed.columns, values, strict=True):
            here = shown(report.figure(name, ours) if ours else None, "")
            rows[-1] += [MISSING if value is None else f"{value:g}", here]
    heads = [f"{name}, {who}" for name in printed.columns for who in ("paper", "here")]
    return tables.Table(["", *heads], rows)


def judged(report: Report) -> list[OrderingHere]:
    return [_judge(report, ordering) for ordering in report.plan.orderings]


def _judge(report: Report, ordering: Ordering) -> OrderingHere:
    def here(verdict: str, words: str) -> OrderingHere:
        return OrderingHere(verdict, ordering.says, ordering.source, words)

    cells = {c.label: c for c in reversed(report.of_part(ordering.part))}
    less, than = cells.get(ordering.less), cells.get(ordering.than)
    if less is None or than is None:
        missing = ordering.less if less is None else ordering.than
        return here("not measured", f"no cell is labelled {missing!r}")
    among = figures.categories(less).get(ordering.category, []) if ordering.category else None
    gap = figures.below(ordering.figure, less, than, report.cells, among)
    low, high = (report.figure(ordering.figure, cell, among) for cell in (less, than))
    if gap is None or low is None or high is None:
        return here("not measured", f"{ordering.figure} is not known for both")
    few = len(figures.common(less, than, among=among)) < figures.LEAST_ITEMS
    verdict = "reproduced" if gap.low > 0 else "not reproduced" if gap.high < 0 else "undecided"
    where = ", ".join(_value(less, key) for key in report.varied(ordering.part))
    words = (
        f"{f'on {where}: ' if where else ''}{ordering.figure} is {significant(low.value)} with "
        f'"{ordering.less}" and {significant(high.value)} with "{ordering.than}", a difference of '
        f"{significant(gap.value)} ({significant(gap.low)} to {significant(gap.high)})"
    )
    return here("undecided" if few else verdict, words)


def facts(report: Report) -> list[tuple[str, str]]:
    now, where = report.progress, report.environment
    rows = [
        ("experiment", now.id),
        ("begun (UTC)", now.created),
        ("items done", f"{now.done} of {now.total}"),
        ("workers", str(where.get("workers", ""))),
        ("code of the decoders", str(where.get("code", ""))),
        *((f"prompts {name}", f"revision {r}") for name, r in where.get("sets", {}).items()),
    ]
    for pair in where.get("pairs", []):
        names = [str(pair[role]["name"]) for role in ("target", "draft", "head") if pair.get(role)]
        words = [
            " + ".join(names),
            *(pair.get(k) for k in ("device_name", "dtype", "host", "platform")),
            f"{pair.get('threads')} threads of {pair.get('cpus')}",
            f"torch {pair.get('torch')}",
        ]
        rows.append(("pair", "; ".join(str(word) for word in words if word)))
    return rows


# A paragraph, a list of sentences, or a table.
Content = str | list[str] | tables.Table


@dataclass(frozen=True)
class Section:
    title: str
    content: list[Content]
    charts: Sequence[go.Figure] = ()


def as_markdown(content: list[Content]) -> str:
    parts = []
    for c in content:
        if isinstance(c, list):
            c = "\n".join(f"- {sentence}" for sentence in c)
        parts.append(tables.markdown(c) if isinstance(c, tables.Table) else c)
    return "\n\n".join(parts)


def as_html(section: Section) -> str:
    parts = []
    for c in section.content:
        if isinstance(c, list):
            items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in c)
            parts.append(f"<ul>{items}</ul>")
        else:
            text = tables.markup(c) if isinstance(c, tables.Table) else f"<p>{html.escape(c)}</p>"
            parts.append(text)
    return "".join(parts)


LINE = 44  # letters of a title that a phone's width holds


def draw(report: Report, drawing: Drawing) -> Iterator[go.Figure]:
    """The charts of a drawing, one for each of its figures that was measured."""
    one = _curve if drawing.kind == "curve" else _front
    for y in drawing.y:
        chart = one(report, drawing, y)
        if chart.data:  # on a phone, the legend has a line for each
            yield chart.update_layout(height=chart.layout.height + 12 * len(chart.data))


def _plane(drawing: Drawing, y: str) -> go.Figure:
    x = drawing.x.replace("_", " ")
    title = drawing.title or f"{y} by {x}"
    if drawing.title and len(drawing.y) > 1:
        title = f"{title}: {y}"
    lines = [_text(line) for line in wrap(title, LINE)]
    return plots.plane("<br>".join(lines), x, y).update_layout(margin_t=24 + 20 * len(lines))


def _text(words: str) -> str:
    """Words as Plotly's text, in which tags are markup."""
    return html.escape(words, quote=False)


def _whiskers(intervals: Sequence[figures.Interval]) -> dict[str, Any]:
    return plots.whiskers(
        (i.value - i.low for i in intervals), (i.high - i.value for i in intervals)
    )


def _curve(report: Report, drawing: Drawing, y: str) -> go.Figure:
    """y over a setting, with a line for each remaining label. Cells without it are dotted lines."""
    lines: dict[str, dict[float, figures.Interval]] = {}
    levels: dict[str, figures.Interval] = {}
    names = report.names(drawing.part)
    for cell in report.of_part(drawing.part):
        value = {**cell.spec, **cell.spec["settings"]}.get(drawing.x)
        interval = report.figure(y, cell)
        if interval is None:
            continue
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            rest = names[cell.cell].replace(f" {drawing.x}={value}", "")
            # Batch size, seed and the like stand behind a comma.
            rest = rest.replace(f", {drawing.x.removesuffix('_size')} {value:g}", "")
            lines.setdefault(rest, {})[value] = interval
        else:
            levels[names[cell.cell]] = interval
    chart = _plane(drawing, y)
    for i, (name, points) in enumerate(lines.items()):
        each = dict(sorted(points.items()))
        plots.line(
            chart, {x: interval.value for x, interval in each.items()}, _text(name), look(i),
            "%{x}: %{y:.3g}",
        )  # fmt: skip
        chart.data[-1].update(error_y=_whiskers([*each.values()]))
    ends = [min(x), max(x)] if (x := {x for points in lines.values() for x in points}) else []
    for i, (name, interval) in enumerate(levels.items() if ends else (), len(lines)):
        plots.line(
            chart, dict.fromkeys(ends, interval.value), _text(name), look(i)._replace(dash="dot"),
            "%{y:.3g}",
        )  # fmt: skip
    return chart


def _front(report: Report, drawing: Drawing, y: str) -> go.Figure:
    """A point for each cell, the highest first."""
    names = report.names(drawing.part)
    points = [
        (b, a, cell)
        for cell in report.of_part(drawing.part)
        if (a := report.figure(drawing.x, cell)) and (b := report.figure(y, cell))
    ]
    alone = len({cell.spec["decoder"] for *_, cell in points}) == len(points)
    chart = _plane(drawing, y)
    for i, (b, a, cell) in enumerate(sorted(points, key=lambda point: -point[0].value)):
        style = look_of(cell.spec["decoder"]) if alone else look(i)
        plots.line(chart, {a.value: b.value}, _text(names[cell.cell]), style, "%{x:.3g}, %{y:.3g}")
        chart.data[-1].update(error_x=_whiskers([a]), error_y=_whiskers([b]))
    return chart


INTERVALS = "Brackets, bars: 95% intervals by a paired bootstrap over prompts (or batches)."
VERDICTS = {
    "reproduced": "Reproduced",
    "not reproduced": "Not reproduced: here it is the other way round",
    "undecided": "Undecided: the difference's interval includes 0, or there are too few prompts",
    "not measured": "Not measured",
}
ITEMS = "items: prompts, or batches, that were decoded; each timing counts"
SIGNS = {"reproduced": "✓", "not reproduced": "✗", "undecided": "?", "not measured": "–"}


def errors(report: Report) -> list[str]:
    counts: Counter[str] = Counter()
    for part in report.plan.names:
        names = report.names(part)
        for cell in report.of_part(part):
            for row in cell.rows.values():
                unscored = [
                    o.scores["why"] for o in row.samples if o.scores and "score" not in o.scores
                ]
                whole = [*row.errors, *(f"an output has no score: {why}" for why in unscored)]
                counts.update(f"{part}, {names[cell.cell]}: {why}" for why in whole)
    return [f"{words} ({counted(count, 'time')})" for words, count in counts.items()]


def sections(report: Report) -> Iterator[Section]:
    """The sections of a report: the papers' orderings, then each part and the rest.

    Parts without any measurement are left out.

    Yields:
        the sections in order
    """
    parts = [part for part in report.plan.parts if report.begun(part.name)]
    if parts:
        yield from _measured(report, parts)
    rest = {
        "Notes": [*report.plan.notes],
        "Failures": errors(report),
        "Measured on": [f"{name}: {value}" for name, value in facts(report)],
    }
    yield from (Section(title, [sentences]) for title, sentences in rest.items() if sentences)


def _measured(report: Report, parts: Sequence[Sweep]) -> Iterator[Section]:
    if report.plan.orderings and (section := orderings(report)).content[1:]:
        yield section
    for part in parts:
        yield _part(report, part)
    content: list[Content] = []
    for printed in report.plan.printed:
        both = beside(report, printed)
        if not report.unfinished or any(here != MISSING for row in both.rows for here in row[2::2]):
            where = ", ".join(p for p in (printed.pair, printed.prompts, printed.device) if p)
            content += [f"{printed.source} (paper: {where})", both]
    if content:
        yield Section("Beside the papers", content)
    named: dict[str, list[str]] = {}
    for name, figure in FIGURES.items():
        named.setdefault(figure.meaning, []).append(name)
    meanings = [f"{', '.join(names)}: {means}" for means, names in named.items() if means]
    yield Section("What the figures mean", [[ITEMS, *meanings]])


def orderings(report: Report) -> Section:
    """The papers' orderings by verdict; those that may still be measured are only counted."""
    each = judged(report)
    counts = {verdict: sum(one.verdict == verdict for one in each) for verdict in VERDICTS}
    later = report.unfinished and "not measured"
    words = ", ".join(
        f"{n} {verdict}{' yet' if verdict == later else ''}" for verdict, n in counts.items() if n
    )
    content: list[Content] = [f"{counted(len(each), 'ordering')} of the papers: {words}."]
    for verdict, heading in VERDICTS.items():
        if counts[verdict] and verdict != later:
            content += [
                f"{heading} ({counts[verdict]}):",
                [
                    f"{SIGNS[verdict]} {one.says} ({one.source}). Here {one.words}."
                    for one in each
                    if one.verdict == verdict
                ],
            ]
    return Section("The papers' orderings", content)


def _part(report: Report, part: Sweep) -> Section:
    drawings = [drawing for drawing in report.plan.drawings if drawing.part == part.name]
    charts = [chart for drawing in drawings for chart in draw(report, drawing)]
    unsaid = [*dict.fromkeys(c.unsaid for c in report.of_part(part.name) if c.unsaid)]
    content: list[Content | None] = [
        part.about,
        table(report, part.name),
        f"Settings other than the library's defaults: {'; '.join(unsaid)}." if unsaid else "",
        INTERVALS,
        by_category(report, part.name, figures.TIMES_GREEDY),
        by_category(report, part.name, "tokens/call"),
    ]
    title = part.name[:1].upper() + part.name[1:]
    return Section(title, [c for c in content if c], charts)


# ---- Reports as files, and the orderings that ship


def markdown(report: Report) -> str:
    """The report as Markdown, which has no charts."""
    parts = [f"# {report.plan.title}", report.plan.about.strip()]
    for section in sections(report):
        parts += [f"## {section.title}", as_markdown(section.content)]
    return "\n\n".join(p for p in parts if p) + "\n"


def to_html(report: Report) -> str:
    parts, every = [f"<p>{html.escape(report.plan.about.strip())}</p>"], [*sections(report)]
    for section in every:
        parts += [f"<h2>{html.escape(section.title)}</h2>", as_html(section)]
        parts += map(figure_html, section.charts)
    drawn = any(section.charts for section in every)
    return frame(report.name, report.plan.title, "\n".join(parts), plotly=drawn)


METRICS = (
    "new_tokens", "seconds", "tokens_per_second", "perplexity", "joules", "target_calls", "drafted",
    "tested", "accepted",
)  # fmt: skip
ASKED = (*WARPING, "seed", "batch_size", "scheme")
HEADS = (
    "part", "cell", "label", "pair", "prompts", "decoder", "settings", *ASKED, "item", *METRICS,
    "score", "error", "text", "timing", "why",
)  # fmt: skip


def to_csv(report: Report) -> str:
    lines = (_line(c, item, row) for c in report.cells for item, row in c.rows.items())
    return as_csv(HEADS, lines, quoted=True)


def _line(cell: CellRows, item: int, row: Result) -> dict[str, Any]:
    spec, (again, place) = cell.spec, divmod(item, NEXT_TIMING)
    scored = [o.scores for o in row.samples if o.scores]
    scores = [each.get("score") for each in scored]
    return {
        "part": cell.part,
        "cell": cell.cell,
        "label": cell.label,
        # Rows of earlier versions lack settings that were off.
        **{name: spec.get(name, "") for name in ("pair", "prompts", "decoder", *ASKED)},
        "settings": json.dumps(spec["settings"]),
        "item": place,
        **{name: row.metrics.get(name) for name in METRICS},
        "score": scores[0] if len(scores) == 1 else json.dumps(scores) if scores else "",
        "error": "; ".join(row.errors),
        "text": "\n".join(o.text for o in row.samples),
        "timing": again + 1,
        "why": "; ".join(str(each["why"]) for each in scored if "why" in each),
    }


WRITERS: dict[str, Callable[[Report], str]] = {"html": to_html, "md": markdown, "csv": to_csv}


FILE = assets() / "stories" / "orderings.json"


@dataclass(frozen=True)
class Orderings:
    """All orderings of an experiment.

    Attributes:
        plan: name of its plan
        experiment: its id
        created: when it began (UTC, ISO 8601)
        pair: the pair and the machine
        found: the orderings
    """

    plan: str
    experiment: str
    created: str
    pair: str
    found: Sequence[OrderingHere]


@cache
def shipped() -> Orderings | None:
    """The orderings that ship with the embedded pair; None where its folder is missing."""
    return TypeAdapter(Orderings).validate_json(FILE.read_bytes()) if FILE.exists() else None


def orderings_html(all: Orderings) -> str:
    counts = {
        verdict: n for verdict in SIGNS if (n := sum(f.verdict == verdict for f in all.found))
    }
    summary = ", ".join(
        f"<b>{n} {SIGNS[verdict]}</b> {VERDICTS[verdict].lower()}" for verdict, n in counts.items()
    )
    items = "".join(
        f'<li class="{each.verdict.replace(" ", "-")}"><b class="sign" role="img" '
        f'aria-label="{each.verdict}">{SIGNS[each.verdict]}</b> {html.escape(each.says)} '
        f"<small>{html.escape(each.source)}. Here {html.escape(each.words)}.</small></li>"
        for verdict in counts
        for each in all.found
        if each.verdict == verdict
    )
    marks = "".join(
        f'<b class="sign {each.verdict.replace(" ", "-")}" title="{html.escape(each.says)}">'
        f"{SIGNS[each.verdict]}</b>"
        for verdict in counts
        for each in all.found
        if each.verdict == verdict
    )
    return (
        '<section class="wb wb-orderings"><h3>Does the order of the papers hold here?</h3>'
        f"<p>Of {len(all.found)} claims such as “{html.escape(all.found[0].says)}”: {summary}.</p>"
        f'<div class="marks" aria-hidden="true">{marks}</div>'
        f'<p class="source">Recorded on {html.escape(all.created[:10])} with the plan '
        f"<code>{html.escape(all.plan)}</code> (experiment {html.escape(all.experiment)}; "
        f"{html.escape(all.pair)}). Brackets are 95% intervals.</p>"
        f"<details><summary>All {len(all.found)} claims, with their figures</summary>"
        f"<ul>{items}</ul></details></section>"
    )
