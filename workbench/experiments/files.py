"""Reports as files: Markdown, HTML, CSV of all rows; and those that ship."""

import html
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from decoders.process import assets
from workbench.experiments.journal import NEXT_TIMING, CellRows
from workbench.experiments.report import (
    SIGNS,
    VERDICTS,
    OrderingHere,
    Report,
    as_html,
    as_markdown,
    sections,
)
from workbench.runs.record import Result
from workbench.show.view import as_csv, frame
from workbench.studies.settings import WARPING


def markdown(report: Report, charts: bool = False) -> str:
    """The report as Markdown.

    Args:
        charts: include the charts, as HTML for pages that have their style sheet
    """
    parts = [f"# {report.plan.title}", report.plan.about.strip()]
    for section in sections(report):
        parts += [f"## {section.title}", as_markdown(section.content)]
        parts += section.charts if charts else ()
    return "\n\n".join(p for p in parts if p) + "\n"


def to_html(report: Report) -> str:
    parts = [f"<p>{html.escape(report.plan.about.strip())}</p>"]
    for section in sections(report):
        parts += [f"<h2>{html.escape(section.title)}</h2>", as_html(section)]
    return frame(report.name, report.plan.title, "\n".join(parts))


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
