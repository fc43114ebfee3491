"""Reports as files: Markdown, HTML that loads nothing, CSV of every row, and Spec-Bench's answers."""

import csv
import html
import io
import json
import re
from collections.abc import Callable

from workbench.experiments import figures
from workbench.experiments.charts import draw
from workbench.experiments.journal import Kept
from workbench.experiments.report import Judged, Report, acceptance, beside, by_category, errors, facts, judged, table
from workbench.show import tables
from workbench.show.report import drawn, frame
from workbench.show.report import facts as list_of_facts
from workbench.show.tables import Table

Files = dict[str, str]
INTERVALS = "Brackets: 95% intervals by a paired bootstrap over prompts (or batches)."


def markdown(found: Report) -> str:
    """Tables and sentences."""
    parts = [f"# {found.plan.title}", found.plan.about.strip()]
    for title, content in sections(found):
        parts.append(f"## {title}")
        parts += [tables.markdown(c) if isinstance(c, Table) else c for c in content]
    parts += ["## Measured on", "\n".join(f"- {name}: {value}" for name, value in facts(found))]
    return "\n\n".join(p for p in parts if p) + "\n"


def to_html(found: Report) -> str:
    """One file that loads nothing: the same with figures."""
    parts = [_paragraph(found.plan.about.strip())]
    for title, content in sections(found):
        parts.append(f"<h2>{html.escape(title)}</h2>")
        parts += [
            _table(title, c) if isinstance(c, Table) else "".join(map(_paragraph, c.split("\n"))) for c in content
        ]
        each = [drawn(f) for drawing in found.plan.drawings if drawing.part == title for f in draw(found, drawing)]
        if each:
            parts.append(f'<div class="wb-charts">{"".join(f"<section>{e}</section>" for e in each)}</div>')
    parts += ["<h2>Measured on</h2>", list_of_facts(facts(found))]
    return frame(found.name, found.plan.title, "\n".join(parts), plotly=True)


def _table(title: str, found: Table) -> str:
    """The paper's columns are grey."""
    paper = [i for i, head in enumerate(found.heads) if head.endswith(", paper")]
    rules = "".join(
        f".wb-printed td:nth-child({i + 1}), .wb-printed th:nth-child({i + 1}) {{ opacity: 0.6; }}" for i in paper
    )
    text = tables.markup(found)
    return f'<style>{rules}</style><div class="wb-printed">{text}</div>' if paper else text


def _paragraph(words: str) -> str:
    return f"<p>{html.escape(words.removeprefix('- '))}</p>" if words else ""


def sections(found: Report) -> list[tuple[str, list[Table | str]]]:
    """Titles with tables and texts. The section of a part has its name."""
    sections: list[tuple[str, list[Table | str]]] = []
    for part in found.plan.parts:
        more = [t for t in (by_category(found, part.name), acceptance(found, part.name)) if t]
        sections.append((part.name, [table(found, part.name), INTERVALS, *more]))
    if found.plan.printed:
        content: list[Table | str] = []
        for printed in found.plan.printed:
            where = ", ".join(p for p in (printed.pair, printed.prompts, printed.device) if p)
            content += [f"{printed.source} (paper: {where})", beside(found, printed)]
        sections.append(("Beside the papers", content))
    if found.plan.orderings:
        sections.append(("Orderings of the papers", ["\n".join(f"- {sentence(j)}" for j in judged(found))]))
    if found.plan.notes:
        sections.append(("Notes", ["\n".join(f"- {note}" for note in found.plan.notes)]))
    if failures := errors(found):
        sections.append(("Failures", ["\n".join(f"- {words}" for words in failures)]))
    return sections


def sentence(one: Judged) -> str:
    return f"{one.ordering.says} ({one.ordering.source}): {one.verdict}; {one.words}."


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
