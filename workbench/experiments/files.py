"""Reports as files: Markdown, HTML that loads nothing, CSV of every row, and Spec-Bench's answers."""

import csv
import html
import io
import json
import re
from collections.abc import Callable

from workbench.experiments import figures
from workbench.experiments.journal import Kept
from workbench.experiments.report import Report
from workbench.experiments.sections import as_html, as_markdown, sections
from workbench.show.report import frame

Files = dict[str, str]


def markdown(found: Report, charts: bool = False) -> str:
    """Tables and sentences; with `charts` also those, as HTML for pages that have their style sheet."""
    parts = [f"# {found.plan.title}", found.plan.about.strip()]
    for section in sections(found):
        parts += [f"## {section.title}", as_markdown(section.content, charts)]
    return "\n\n".join(p for p in parts if p) + "\n"


def to_html(found: Report) -> str:
    """One file that loads nothing: the same with figures."""
    parts = [as_html([found.plan.about.strip()])]
    for section in sections(found):
        parts += [f"<h2>{html.escape(section.title)}</h2>", as_html(section.content)]
    return frame(found.name, found.plan.title, "\n".join(parts))


def to_csv(found: Report) -> str:
    """A line for each row of each cell."""
    out = io.StringIO(newline="")
    names = (
        "new_tokens",
        "seconds",
        "tokens_per_second",
        "perplexity",
        "joules",
        "target_calls",
        "drafted",
        "tested",
        "accepted",
    )
    heads = ["part", "cell", "label", "pair", "prompts", "decoder", "settings", "temperature", "top_k", "top_p", "seed", "batch_size", "scheme", "item", *names, "score", "error", "text"]  # fmt: skip
    writer = csv.writer(
        out, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC
    )  # a text may have a lone carriage return
    writer.writerow(heads)
    for cell in found.cells:
        asked = cell.asked
        for item, row in cell.rows.items():
            own = [asked[k] for k in ("pair", "prompts", "decoder")] + [json.dumps(asked["settings"])]
            own += [asked[k] for k in ("temperature", "top_k", "top_p", "seed", "batch_size", "scheme")]
            scores = [o.scores.get("score") for o in row.outputs if o.scores]
            score = scores[0] if len(scores) == 1 else json.dumps(scores) if scores else ""
            texts = _safe("\n".join(o.text for o in row.outputs))
            values = [row.metrics.get(n) for n in names]
            writer.writerow(
                [cell.part, cell.cell, cell.label, *own, item, *values, score, _safe("; ".join(row.errors)), texts]
            )
    return out.getvalue()


def _safe(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def spec_bench(found: Report) -> Files:
    """An answer file for each cell of single prompts, as Spec-Bench's own `speed.py` reads it."""
    files: Files = {}
    for cell in found.cells:
        lines = [line for row in figures.good(cell).values() if (line := _answer(cell, row))]
        if lines:
            name = re.sub(r"[^A-Za-z0-9.=-]+", "_", f"{found.name}-{cell.part}-{cell.label}-{cell.cell[:6]}")
            files[f"{name}.jsonl"] = "".join(f"{json.dumps(line)}\n" for line in lines)
    return files


def _answer(cell: Kept, row: figures.Row) -> dict | None:
    if len(row.outputs) != 1 or not row.metrics.get("seconds"):
        return None
    output = row.outputs[0]
    id = int(output.id) if output.id.isdecimal() else output.prompt
    turns = {
        "index": 0, "turns": [output.text], "decoding_steps": [len(output.gained)], "new_tokens": [len(output.tokens)],
        "wall_time": [row.metrics["seconds"]], "accept_lengths": output.gained,
    }  # fmt: skip
    return {
        "question_id": id,
        "category": output.category or "all",
        "answer_id": f"{cell.cell}-{row.item}",
        "model_id": cell.label,
        "choices": [turns],
    }


WRITERS: dict[str, Callable[[Report], Files]] = {
    "html": lambda found: {f"{found.name}.html": to_html(found)},
    "md": lambda found: {f"{found.name}.md": markdown(found)},
    "csv": lambda found: {f"{found.name}.csv": to_csv(found)},
    "spec-bench": spec_bench,
}
