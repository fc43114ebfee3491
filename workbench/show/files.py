"""A run as a file: JSON, CSV or HTML.

JSON is complete and can be loaded again, CSV has the unrounded figures, and HTML is a report that
needs nothing else.
"""

import json
from collections.abc import Callable
from typing import Any

from workbench.runs import doubts
from workbench.runs.estimates import rows, timed_speed, timed_times_greedy, times_greedy
from workbench.runs.record import Result, Run
from workbench.show.report import to_html
from workbench.show.spreadsheet import as_csv
from workbench.show.view import Line, view_of

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
    """The fields that all rows share.

    They are the run, its models and device, and the settings that all decoders share.
    """
    where, settings = run.environment, run.settings
    models = {
        role: where[role].get("name")
        for role in ("target", "draft")
        if isinstance(where.get(role), dict)
    }
    plain = {
        n: v
        for n, v in settings.items()
        if not isinstance(v, (dict, list)) and n not in ASKED_ELSEWHERE
    }
    device = {name: where.get(name) for name in ("device", "device_name", "dtype", "threads")}
    return {
        "run": run.id,
        "created": run.created,
        "kind": run.kind,
        "title": run.title,
        **models,
        **device,
        **plain,
    }


def _timed(result: Result, greedy: Result | None) -> Line:
    """The number of timings, the ranges of speed and ratio, and the reasons to doubt them."""
    found = {
        "tokens_per_second": timed_speed(result),
        "x_greedy": timed_times_greedy(result, greedy),
    }
    ranges = {
        f"{name}_{end}": getattr(each, end) if each and each.laps > 1 else None
        for name, each in found.items()
        for end in ("low", "high")
    }
    reasons = [*doubts.faults(result), *doubts.unsteady(result, greedy), *result.remarks]
    return {"timed": len(result.laps), **ranges, "unsteady": "; ".join(reasons)}


def _each(run: Run) -> list[tuple[Result, Result | None]]:
    """Every result in the order in which they ran, with greedy's."""
    beside = {
        id(r): greedy
        for row in rows(run.results)
        for r, greedy in zip(row.results, row.greedy, strict=True)
    }
    return [(r, beside[id(r)]) for r in run.results]


def _line(run: Run, r: Result, greedy: Result | None) -> Line:
    """The fields of every result."""
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
        **_timed(r, greedy),
    }
