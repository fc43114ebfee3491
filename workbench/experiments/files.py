"""Reports as files: Markdown, HTML, CSV of all rows; and those that ship."""

import html
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from decoders.process import assets
from workbench.experiments.journal import NEXT_TIMING, CellRows
from workbench.experiments.report import (
    OrderingHere,
    Report,
    as_html,
    as_markdown,
    judged,
    sections,
)
from workbench.runs.record import Result
from workbench.show.view import as_csv, frame
from workbench.studies.settings import WARPING

Files = dict[str, str]


def markdown(report: Report, charts: bool = False) -> str:
    """The report as Markdown.

    Args:
        charts: include the charts, as HTML for pages that have their style sheet
    """
    parts = [f"# {report.plan.title}", report.plan.about.strip()]
    for section in sections(report):
        parts += [f"## {section.title}", as_markdown(section.content, charts)]
    return "\n\n".join(p for p in parts if p) + "\n"


def to_html(report: Report) -> str:
    """The report with its charts as one HTML file that loads nothing."""
    parts = [as_html([report.plan.about.strip()])]
    for section in sections(report):
        parts += [f"<h2>{html.escape(section.title)}</h2>", as_html(section.content)]
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
    """A line for each row of each cell."""
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


WRITERS: dict[str, Callable[[Report], Files]] = {
    "html": lambda report: {f"{report.name}.html": to_html(report)},
    "md": lambda report: {f"{report.name}.md": markdown(report)},
    "csv": lambda report: {f"{report.name}.csv": to_csv(report)},
}


FILE = assets() / "stories" / "orderings.json"
SIGNS = {"reproduced": "✓", "not reproduced": "✗", "undecided": "?", "not measured": "–"}
MEANS = {
    "reproduced": "as in the paper",
    "not reproduced": "the other way round",
    "undecided": "undecided: the interval of the difference includes 0",
    "not measured": "not measured",
}


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

    @staticmethod
    def of(report: Report, pair: str) -> "Orderings":
        """Those of a finished experiment; `pair` names its pair and its machine."""
        where, each = report.progress, tuple(judged(report))
        return Orderings(report.plan.name, where.id, where.created, pair, each)

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> "Orderings":
        data: dict[str, Any] = json.loads(text)
        return Orderings(**{**data, "found": tuple(OrderingHere(**each) for each in data["found"])})


@cache
def shipped() -> Orderings | None:
    """The orderings that ship with the embedded pair; None if there are none."""
    return Orderings.from_json(FILE.read_text(encoding="utf-8")) if FILE.exists() else None


def orderings_html(all: Orderings) -> str:
    """The orderings with a sign each, their counts, and where they come from."""
    counts = {
        verdict: n for verdict in SIGNS if (n := sum(f.verdict == verdict for f in all.found))
    }
    summary = ", ".join(
        f"<b>{n} {SIGNS[verdict]}</b> {MEANS[verdict]}" for verdict, n in counts.items()
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
        f"{html.escape(all.pair)}). Brackets are 95% intervals. Press <b>Run the plan</b> to "
        f"measure it here.</p><details><summary>All {len(all.found)} claims, with their figures"
        f"</summary><ul>{items}</ul></details></section>"
    )
