"""A run as a file: JSON (complete, reloadable), CSV (its figures, unrounded), HTML (a report that needs nothing else)."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

from workbench.runs import laps
from workbench.runs.draws import drawn, findings
from workbench.runs.estimates import BatchFigures, rows, speed, timed_speed, timed_times_greedy, times_greedy
from workbench.runs.record import Result, Run
from workbench.show.report import to_html
from workbench.studies.batch import Batch
from workbench.studies.comparison import Comparison
from workbench.studies.draw import Draw

ASKED_ELSEWHERE = ("seed", "repeats")  # every row has its own


def to_json(run: Run) -> str:
    """Strict JSON; `Run.from_json` reads it back."""
    return json.dumps(run.to_json(), ensure_ascii=False, allow_nan=False, indent=1)


def to_csv(run: Run) -> str:
    """A row for each result: first what was asked and where it ran, then its figures; an empty cell means that there is no such
    figure, never zero."""
    asked, more = _asked(run), _MORE.get(run.kind, _checked)(run)
    lines = [{**asked, **_line(run, r, greedy), **more(r)} for r, greedy in _each(run)]
    text = io.StringIO()
    heads = dict.fromkeys(name for line in lines or [asked] for name in line)
    writer = csv.DictWriter(text, list(heads), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in line.items()} for line in lines)
    return text.getvalue()


WRITERS: dict[str, Callable[[Run], str]] = {"json": to_json, "csv": to_csv, "html": to_html}


def _asked(run: Run) -> dict[str, Any]:
    """What all rows share: the run, its models and device, and the settings that all decoders share."""
    where, settings = run.environment, run.settings
    models = {role: where[role].get("name") for role in ("target", "draft") if isinstance(where.get(role), dict)}
    plain = {n: v for n, v in settings.items() if not isinstance(v, (dict, list)) and n not in ASKED_ELSEWHERE}
    device = {name: where.get(name) for name in ("device", "device_name", "dtype", "threads")}
    return {"run": run.id, "created": run.created, "kind": run.kind, "title": run.title, **models, **device, **plain}


def _cell(value: Any) -> Any:
    """A text that a spreadsheet would run as a formula is marked as text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


Line = dict[str, Any]


def _timed(result: Result, greedy: Result | None) -> Line:
    """How often a result was timed, the ranges of its ratios over these timings, and why they cannot be trusted, if they cannot."""
    found = {"tokens_per_second": timed_speed(result), "x_greedy": timed_times_greedy(result, greedy)}
    ranges = {
        f"{name}_{end}": getattr(each, end) if each and each.laps > 1 else None
        for name, each in found.items()
        for end in ("low", "high")
    }
    reasons = [*laps.faults(result), *laps.unsteady(result, greedy), *result.remarks]
    return {"timed": len(result.laps), **ranges, "unsteady": "; ".join(reasons)}


def _each(run: Run) -> list[tuple[Result, Result | None]]:
    """Every result in the order they ran, with greedy's."""
    beside = {id(r): greedy for row in rows(run.results) for r, greedy in zip(row.results, row.greedy, strict=True)}
    return [(r, beside[id(r)]) for r in run.results]


def _line(run: Run, r: Result, greedy: Result | None) -> Line:
    """What every result has."""
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


def _comparison(_: Run) -> Callable[[Result], Line]:
    return lambda r: {
        "identical_to_greedy": None if r.agreement is None else not r.agreement.differing,
        "finished": r.alone.finished,
        "error": r.error,
    }


def _checked(_: Run) -> Callable[[Result], Line]:
    """Also for kinds that this room does not know."""
    return lambda r: {
        "differing": r.agreement and r.agreement.differing,
        "reference": r.agreement and r.agreement.reference,
        "errors": "; ".join(r.errors),
    }


def _batch(run: Run) -> Callable[[Result], Line]:
    figures, checked = BatchFigures(run), _checked(run)

    def more(r: Result) -> Line:
        of = r.decoder, r.batch_size, r.scheme
        return checked(r) | {
            "x_greedy": figures.times_greedy(*of),
            "decode_tokens_per_second": speed(r, decoding=True),
            "decode_x_greedy": figures.times_greedy(*of, decoding=True),
            "least_acceptance": figures.least_acceptance(r.decoder, r.batch_size),
        }

    return more


def _draws(run: Run) -> Callable[[Result], Line]:
    found, checked = {each.decoder: each for each in findings(run)}, _checked(run)

    def more(r: Result) -> Line:
        each, texts = found.get(r.decoder), [tuple(piece.id for piece in sample.pieces) for sample in drawn(r)]
        return checked(r) | {
            "drawn": len(texts),
            "different": len(set(texts)),
            "compared_with": each and each.compared,
            "compared_draws": each and each.draws,
            "p_holm": each and each.p,
            "total_variation": each and each.distance,
            "total_variation_of_exact": each and each.usual,
            "total_variation_of_exact_95": each and each.most,
        }

    return more


_MORE: dict[str, Callable[[Run], Callable[[Result], Line]]] = {
    Comparison.kind: _comparison,
    Batch.kind: _batch,
    Draw.kind: _draws,
}
