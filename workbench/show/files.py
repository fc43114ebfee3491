"""A run as a file: JSON (complete, reloadable), CSV (its figures, unrounded), HTML (a report that needs nothing else)."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

from workbench.runs import laps
from workbench.runs.estimates import BatchFigures, Row, rows, speed, timed_speed, timed_times_greedy, times_greedy
from workbench.runs.record import Result, Run
from workbench.show.report import to_html
from workbench.studies.batch import Batch
from workbench.studies.comparison import Comparison

ASKED_ELSEWHERE = ("seed", "repeats")  # every row has its own


def to_json(run: Run) -> str:
    """Strict JSON; `Run.from_json` reads it back."""
    return json.dumps(run.to_json(), ensure_ascii=False, allow_nan=False, indent=1)


def to_csv(run: Run) -> str:
    """A row for each result: first what was asked and where it ran, then its figures; an empty cell is a figure that there is none
    of, never a zero."""
    asked = _asked(run)
    lines = [{**asked, **line} for line in _LINES.get(run.kind, _plain)(run)]
    text = io.StringIO()
    heads = dict.fromkeys(name for line in lines or [asked] for name in line)
    writer = csv.DictWriter(text, list(heads), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in line.items()} for line in lines)
    return text.getvalue()


WRITERS: dict[str, Callable[[Run], str]] = {"json": to_json, "csv": to_csv, "html": to_html}


def _asked(run: Run) -> dict[str, Any]:
    """What all rows share: the run, its models and device, and the settings that all decoders share."""
    where, settings = run.environment, run.study.get("settings", {})
    models = {role: where[role].get("name") for role in ("target", "draft") if isinstance(where.get(role), dict)}
    plain = {n: v for n, v in settings.items() if not isinstance(v, (dict, list)) and n not in ASKED_ELSEWHERE}
    device = {name: where.get(name) for name in ("device", "device_name", "dtype", "threads")}
    return {"run": run.id, "created": run.created, "kind": run.kind, "title": run.title, **models, **device, **plain}


def _cell(value: Any) -> Any:
    """A text that a spreadsheet would run as a formula is marked as text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


Line = dict[str, Any]


def _timed(result: Result, greedy: Result | None) -> Line:
    """How often a result was timed, the ranges of its ratios over these timings, and why they cannot be trusted, if so."""
    found = {"tokens_per_second": timed_speed(result), "x_greedy": timed_times_greedy(result, greedy)}
    ranges = {
        f"{name}_{end}": getattr(each, end) if each and each.laps > 1 else None
        for name, each in found.items()
        for end in ("low", "high")
    }
    reasons = [*laps.faults(result), *laps.unsteady(result, greedy), *result.remarks]
    return {"timed": len(result.laps), **ranges, "unsteady": "; ".join(reasons)}


def _each(run: Run) -> Iterator[tuple[Row, Result, Result | None]]:
    """Every result in the order they ran, with its row and greedy's result beside it."""
    found = {
        id(r): (row, r, greedy) for row in rows(run.results) for r, greedy in zip(row.results, row.greedy, strict=True)
    }
    return (found[id(result)] for result in run.results)


def _own(run: Run, result: Result) -> Line:
    """The decoder's own settings, as JSON."""
    own = run.study.get("settings", {}).get(result.decoder, {})
    return {"settings": json.dumps(own, ensure_ascii=False)}


def _comparison(run: Run) -> Iterator[Line]:
    for _, r, greedy in _each(run):
        compared = r.agreement
        yield {
            "decoder": r.decoder,
            **_own(run, r),
            "repeat": r.repeat,
            "seed": r.seed,
            **r.metrics,
            "x_greedy": times_greedy(r, greedy),
            **_timed(r, greedy),
            "identical_to_greedy": None if compared is None else not compared.differing,
            "finished": r.alone.finished,
            "error": r.error,
        }


def _plain(run: Run) -> Iterator[Line]:
    """For kinds that this room does not know, and the common part of batches."""
    for _, r, greedy in _each(run):
        compared = r.agreement
        yield {
            "decoder": r.decoder,
            **_own(run, r),
            "batch_size": r.batch_size,
            "scheme": r.scheme,
            "repeat": r.repeat,
            "seed": r.seed,
            **r.metrics,
            "joules": r.energy.joules,
            "energy_source": r.energy.source,
            "differing": compared and compared.differing,
            "reference": compared and compared.reference,
            "errors": "; ".join(r.errors),
            "x_greedy": times_greedy(r, greedy),
            **_timed(r, greedy),
        }


def _batch(run: Run) -> Iterator[Line]:
    figures = BatchFigures(run)
    for line, (_, r, _greedy) in zip(_plain(run), _each(run), strict=True):
        of = r.decoder, r.batch_size, r.scheme
        yield line | {
            "decode_tokens_per_second": speed(r, decoding=True),
            "x_greedy": figures.times_greedy(*of),
            "decode_x_greedy": figures.times_greedy(*of, decoding=True),
            "least_acceptance": figures.least_acceptance(r.decoder, r.batch_size),
        }


_LINES: dict[str, Callable[[Run], Iterator[Line]]] = {Comparison.kind: _comparison, Batch.kind: _batch}
