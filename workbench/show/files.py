"""A run as a file: JSON, CSV or HTML.

JSON is complete and can be loaded again, CSV has the unrounded figures, and HTML is a report that
needs nothing else.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from workbench.runs import timing
from workbench.runs.figures import rows, timed_speed, timed_times_greedy, times_greedy
from workbench.runs.record import Result, Run
from workbench.show.view import Line, to_html, view_of

ASKED_ELSEWHERE = ("seed", "repeats")  # every row has its own


def to_json(run: Run) -> str:
    """Strict JSON; `Run.from_json` reads it back."""
    return json.dumps(run.to_json(), ensure_ascii=False, allow_nan=False, indent=1)


def to_csv(run: Run) -> str:
    """A row for each result: first the settings and the machine, then its figures.

    An empty cell means that there is no such figure, never zero.
    """
    asked, more = _asked(run), view_of(run.kind).columns(run)
    lines = [{**asked, **_line(run, r, greedy), **more(r)} for r, greedy in _each(run)]
    return as_csv(list(dict.fromkeys(name for line in lines or [asked] for name in line)), lines)


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
            if not isinstance(value, (dict, list)) and name not in ASKED_ELSEWHERE
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
    doubted = [*timing.faults(r), *timing.unsteady(r, greedy), *r.remarks]
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
            f"{name}_{end}": getattr(found, end) if found and found.laps > 1 else None
            for name, found in timed.items()
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
