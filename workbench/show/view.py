"""The looks of runs: beside each other, and as a file of JSON, CSV or HTML.

Of two runs come first the settings that differ and the figures of both, then decoder by decoder the
texts, marked from where they part. JSON is complete and can be loaded again, CSV has
the unrounded figures, and HTML is a report that needs nothing else. A report has a frame for all
kinds, and a body for each.
"""

import csv
import html
import io
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from decoders import catalog
from workbench.kinds.registry import part_of, study_of
from workbench.runs import timing
from workbench.runs.figures import (
    Row,
    rows,
    timed_speed,
    timed_times_greedy,
    times_greedy,
)
from workbench.runs.record import Result, Run
from workbench.show import looks, tables, web
from workbench.show.quantities import MISSING
from workbench.show.tables import Table, markup, words
from workbench.studies import prompts
from workbench.studies.settings import counted, shortened

SIDES = ("A", "B")
BOTH = "A and B"
ALIKE = "Their settings and machines are the same."


def differing(a: Run, b: Run) -> Table:
    """The settings and facts of the environment that differ between two runs.

    Those of single decoders are named by their ids.
    """
    first, second = (dict(_named(run, {*a.settings} & {*b.settings})) for run in (a, b))
    return Table(
        ["setting", *SIDES],
        [
            [name, *(words(side[name]) if name in side else MISSING for side in (first, second))]
            for name in dict.fromkeys([*first, *second])
            if first.get(name) != second.get(name)
        ],
    )


def _named(run: Run, shared: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Every setting and every fact of the environment under one name, such as "mtad.beams".

    Of the settings of decoders, only those of `shared` decoders.
    """
    first = {study_of(run.kind).named: prompts.written(run.study.get("prompt", run.title))}
    for name, value in chain(first.items(), run.settings.items(), run.environment.items()):
        if name in catalog and name not in shared:
            continue
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", each) for inner, each in value.items())
        else:
            yield name, value


def alike(a: Sequence[Any], b: Sequence[Any]) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def marked(pieces: Sequence[str], same: int) -> str:
    """A text, escaped; what comes after the pieces that another text shares is marked."""
    shared, own = (html.escape("".join(part)) for part in (pieces[:same], pieces[same:]))
    return f"{shared}<mark>{own}</mark>" if own else shared


def figures_of_two(a: Run, b: Run) -> str:
    table = tables.side_by_side(a, b)
    apart = "<p>These runs share no decoder at the same batch size and scheme.</p>"
    return settings(a, b) + (tables.markup(table) if table.rows else apart)


def comparisons(a: Run, b: Run) -> str:
    first, second = ({row.decoder: row for row in rows(run.results)} for run in (a, b))
    return figures_of_two(a, b) + "".join(
        _section(row, first.get(d), second.get(d)) for d, row in (first | second).items()
    )


def settings(a: Run, b: Run) -> str:
    says, table = f"<h3>{ALIKE}</h3>", differing(a, b)
    if table.rows:
        count = counted(len(table.rows), "setting differs", "settings differ")
        says = f"<h3>{count}</h3>{markup(table)}"
    return f'<section class="asked">{says}</section>'


def _section(row: Row, a: Row | None, b: Row | None) -> str:
    if a is None or b is None:
        says, content = f"only in {SIDES[b is not None]}", ""
    else:
        both = dict(zip(SIDES, (each.first.alone.tokens for each in (a, b)), strict=True))
        ids = [[token.id for token in tokens] for tokens in both.values()]
        same = alike(*ids)
        says = f"the texts differ from token {same + 1}"
        if ids[0] == ids[1]:
            says, both = "the same text", {BOTH: a.first.alone.tokens}
        sides = "".join(
            f'<div class="side"><h4>{side}</h4><div class="text" dir="auto">'
            f"{marked([token.text for token in tokens], same) or '(no text)'}</div></div>"
            for side, tokens in both.items()
        )
        content = f'<div class="sides">{sides}</div>'
    return (
        f'<section><h3 class="wb-mark">{looks.mark(looks.look_of(row.decoder))}'
        f"{html.escape(row.label)}<small>{says}</small></h3>{content}</section>"
    )


Line = dict[str, Any]  # of a CSV
# The report loads nothing and can send nothing, whatever a prompt or a model wrote into it.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)
STYLE = """html { scrollbar-gutter: stable; } body { margin: 0; }
.wb-report { min-height: 100vh; padding: 24px; background: var(--ground);
  font-family: system-ui, sans-serif; }
.wb-report dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; }
.wb-report dd { margin: 0; overflow-wrap: anywhere; white-space: pre-wrap; }
@media print { .wb-report { padding: 0; background: none; } }"""
DARK = (
    'document.documentElement.classList.toggle("dark", '
    'matchMedia("(prefers-color-scheme: dark)").matches);'
)
TITLE_SHOWN = 80  # characters of a prompt


@dataclass(frozen=True)
class Body:
    """The part of a report between its title and its facts.

    Attributes:
        content: HTML
        script: a script that runs last
        plotly: whether it holds figures of Plotly
    """

    content: str
    script: str = ""
    plotly: bool = False


def agreement(_: Run) -> Callable[[Result], Line]:
    return lambda r: {
        "differing": r.agreement and r.agreement.differing,
        "reference": r.agreement and r.agreement.reference,
        "errors": "; ".join(r.errors),
    }


@dataclass(frozen=True)
class View:
    """The looks of runs of one kind.

    Attributes:
        heading: a report's name for the run, before its title
        body: the body of its report
        columns: for a run, the fields of a result's line in its CSV beyond those of every result
        beside: two runs as HTML
    """

    heading: str
    body: Callable[[Run], Body] = lambda run: Body(
        f"<h2>Figures</h2>\n{tables.markup(tables.figures(run))}"
    )
    columns: Callable[[Run], Callable[[Result], Line]] = agreement
    beside: Callable[[Run, Run], str] = figures_of_two


def view_of(kind: str) -> View:
    return part_of(kind, "VIEW") or View(kind)


def to_html(run: Run) -> str:
    view = view_of(run.kind)
    body = view.body(run)
    notes = "".join(f"<p>{_text(note)}</p>" for note in tables.notes(run))
    facts = "".join(
        f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in tables.facts(run)
    )
    title, when = shortened(run.title, TITLE_SHOWN), f"{run.created[:16].replace('T', ' ')} UTC"
    return frame(
        f"{title} · {when} · decoding run {run.id}",
        f"{view.heading}: {title}",
        f"<p>{_text(when)} · {_text(run.models)} · run {run.id}</p>{body.content}\n{notes}\n"
        f"<h2>Settings and environment</h2>\n<dl>{facts}</dl>",
        script=body.script,
        plotly=body.plotly,
    )


def frame(title: str, heading: str, content: str, *, script: str = "", plotly: bool = False) -> str:
    """A whole file.

    Args:
        title: its title, as text
        heading: its heading, as text
        content: its content, as HTML
        script: a script that runs last
        plotly: whether it holds figures of Plotly
    """
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{_text(title)}</title>
{web.head()}
<style>{STYLE}</style>
<script>{DARK}</script>
{f"<script>{get_plotlyjs()}</script>" if plotly else ""}
</head>
<body><main class="wb-report">
<h1>{_text(heading)}</h1>
{content}
</main>
<script>{script}</script>
</body>
</html>
"""


def figure_html(figure: go.Figure) -> str:
    return figure.to_html(full_html=False, include_plotlyjs=False, config={"displayModeBar": False})


def _text(value: object) -> str:
    return html.escape(str(value))


def to_json(run: Run) -> str:
    return json.dumps(run.to_json(), ensure_ascii=False, allow_nan=False, indent=1)


def to_csv(run: Run) -> str:
    """A row for each result: first the settings and the machine, then its figures.

    An empty cell means that there is no such figure, never zero.
    """
    settings, more = _asked(run), view_of(run.kind).columns(run)
    lines = [{**settings, **_line(run, r, greedy), **more(r)} for r, greedy in _each(run)]
    return as_csv(list(dict.fromkeys(name for line in lines or [settings] for name in line)), lines)


WRITERS: dict[str, Callable[[Run], str]] = {"json": to_json, "csv": to_csv, "html": to_html}


def _asked(run: Run) -> dict[str, Any]:
    where = run.environment
    models = {role: where[role] for role in ("target", "draft", "head") if role in where}
    return {
        "run": run.id,
        "created": run.created,
        "kind": run.kind,
        "title": run.title,
        **{role: model.get("name") for role, model in models.items() if isinstance(model, dict)},
        **{name: where.get(name) for name in ("device", "device_name", "dtype", "threads")},
        **{
            name: value
            for name, value in run.settings.items()
            if not isinstance(value, (dict, list))
            and name not in ("seed", "repeats")  # every row has its own
        },
    }


def _each(run: Run) -> list[tuple[Result, Result | None]]:
    beside = {
        id(r): greedy
        for row in rows(run.results)
        for r, greedy in zip(row.results, row.greedy, strict=True)
    }
    return [(r, beside[id(r)]) for r in run.results]


def _line(run: Run, r: Result, greedy: Result | None) -> Line:
    timed = {"tokens_per_second": timed_speed(r), "x_greedy": timed_times_greedy(r, greedy)}
    doubted = [*timing.unsteady(r, greedy), *r.remarks]
    return {
        "decoder": r.decoder,
        "settings": json.dumps(run.settings.get(r.decoder, {}), ensure_ascii=False),
        "batch_size": r.batch_size,
        "scheme": r.scheme,
        "repeat": r.repeat,
        "seed": r.seed,
        **r.metrics,
        "joules": r.energy.joules,
        "energy_source": r.energy.source,
        "x_greedy": times_greedy(r, greedy),
        "timed": len(r.laps),
        **{
            f"{name}_{end}": getattr(estimate, end) if estimate and estimate.laps > 1 else None
            for name, estimate in timed.items()
            for end in ("low", "high")
        },
        "unsteady": "; ".join(doubted),
    }


def as_csv(heads: Sequence[str], lines: Iterable[Mapping[str, Any]], quoted: bool = False) -> str:
    """The lines under their heads. An empty cell means that there is no such value, never zero.

    A text that a spreadsheet would run as a formula is marked as text.

    Args:
        heads: the names of the columns
        lines: the values by these names
        quoted: whether all texts are quoted, as those must be that may hold a lone carriage return
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(
        text,
        heads,
        lineterminator="\n",
        quoting=csv.QUOTE_NONNUMERIC if quoted else csv.QUOTE_MINIMAL,
    )
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in line.items()} for line in lines)
    return text.getvalue()


def _cell(value: Any) -> Any:
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if formula else value
