"""Reports as files: Markdown, HTML that loads nothing, CSV of all rows, Spec-Bench's answers."""

import html
import json
import re
from collections.abc import Callable
from typing import Any

from workbench.experiments import figures
from workbench.experiments.journal import NEXT_TIMING, Kept, Row
from workbench.experiments.plan import GRID
from workbench.experiments.report import Report, as_html, as_markdown, sections
from workbench.show.files import as_csv
from workbench.show.view import frame

Files = dict[str, str]


def markdown(found: Report, charts: bool = False) -> str:
    """The report as Markdown.

    Args:
        found: the report
        charts: include the charts, as HTML for pages that have their style sheet
    """
    parts = [f"# {found.plan.title}", found.plan.about.strip()]
    for section in sections(found):
        parts += [f"## {section.title}", as_markdown(section.content, charts)]
    return "\n\n".join(p for p in parts if p) + "\n"


def to_html(found: Report) -> str:
    """The report with its charts as one HTML file that loads nothing."""
    parts = [as_html([found.plan.about.strip()])]
    for section in sections(found):
        parts += [f"<h2>{html.escape(section.title)}</h2>", as_html(section.content)]
    return frame(found.name, found.plan.title, "\n".join(parts))


METRICS = (
    "new_tokens", "seconds", "tokens_per_second", "perplexity", "joules", "target_calls", "drafted",
    "tested", "accepted",
)  # fmt: skip
ASKED = (*GRID, "temperature_last", "seed", "batch_size", "scheme")
HEADS = (
    "part", "cell", "label", "pair", "prompts", "decoder", "settings", *ASKED, "item", *METRICS,
    "score", "error", "text", "timing", "why",
)  # fmt: skip


def to_csv(found: Report) -> str:
    """A line for each row of each cell."""
    lines = (_line(c, item, row) for c in found.cells for item, row in c.rows.items())
    return as_csv(HEADS, lines, quoted=True)


def _line(cell: Kept, item: int, row: Row) -> dict[str, Any]:
    asked, (again, place) = cell.asked, divmod(item, NEXT_TIMING)
    told = [o.scores for o in row.outputs if o.scores]
    scores = [each.get("score") for each in told]
    return {
        "part": cell.part,
        "cell": cell.cell,
        "label": cell.label,
        # Rows of earlier versions lack settings that were off.
        **{name: asked.get(name, "") for name in ("pair", "prompts", "decoder", *ASKED)},
        "settings": json.dumps(asked["settings"]),
        "item": place,
        **{name: row.metrics.get(name) for name in METRICS},
        "score": scores[0] if len(scores) == 1 else json.dumps(scores) if scores else "",
        "error": "; ".join(row.errors),
        "text": "\n".join(o.text for o in row.outputs),
        "timing": again + 1,
        "why": "; ".join(str(each["why"]) for each in told if "why" in each),
    }


def spec_bench(found: Report) -> Files:
    """An answer file for each cell of single prompts, as Spec-Bench's own `speed.py` reads it."""
    files: Files = {}
    for cell in found.cells:
        lines = [line for row in figures.good(cell).values() if (line := _answer(cell, row))]
        if lines:
            name = f"{found.name}-{cell.part}-{cell.label}-{cell.cell[:6]}"
            file = f"{re.sub(r'[^A-Za-z0-9.=-]+', '_', name)}.jsonl"
            files[file] = "".join(f"{json.dumps(line)}\n" for line in lines)
    return files


def _answer(cell: Kept, row: Row) -> dict | None:
    if len(row.outputs) != 1 or not row.metrics.get("seconds"):
        return None
    output = row.outputs[0]
    return {
        "question_id": int(output.id) if output.id.isdecimal() else output.prompt,
        "category": output.category or "all",
        "answer_id": f"{cell.cell}-{row.item}",
        "model_id": cell.label,
        "choices": [{
            "index": 0, "turns": [output.text], "decoding_steps": [len(output.gained)],
            "new_tokens": [len(output.ids)], "wall_time": [row.metrics["seconds"]],
            "accept_lengths": output.gained,
        }],
    }  # fmt: skip


WRITERS: dict[str, Callable[[Report], Files]] = {
    "html": lambda found: {f"{found.name}.html": to_html(found)},
    "md": lambda found: {f"{found.name}.md": markdown(found)},
    "csv": lambda found: {f"{found.name}.csv": to_csv(found)},
    "spec-bench": spec_bench,
}
