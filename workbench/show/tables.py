"""A batch experiment as tables: the page's, the paper's as Markdown, and CSV."""

import csv
import io
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict

from workbench.show.quantities import megabytes, significant
from workbench.studies.batch_records import BASELINE, WAYS, BatchRun, Cell, way_label, ways_at

MISSING = "–"


def table(run: BatchRun) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: a row for each decoder, batch size and way, figures with ± over repeats."""
    heads = ["decoder", "batch", "way", "tokens/s", "x greedy", "decoding", "x greedy ", "padding", "pad tokens",
             "pad rows", "at once", "cache", "same"]  # fmt: skip
    keys = dict.fromkeys((c.decoder, c.batch_size, c.way) for c in run.cells)
    rows = []
    for decoder, size, way in keys:
        cells, of = run.find(decoder, size, way), (decoder, size, way)
        rows.append(
            [
                decoder.replace("_", " "),
                str(size),
                way_label(*of),
                _spread(cells, lambda c: c.tokens_per_second),
                _times(run.speed_up(*of)),
                _spread(cells, lambda c: c.decode_speed),
                _times(run.speed_up(*of, decoding=True)),
                _spread(cells, lambda c: c.padding_ratio, "{:.0%}".format),
                f"{cells[0].padded_tokens:,}",
                f"{cells[0].padded_rows:,}",
                str(max(c.at_once for c in cells)),
                megabytes(max(c.peak_cache_bytes for c in cells)),
                _same(cells),
            ]
        )
    return heads, rows


def verdict(run: BatchRun) -> str:
    """Whether all cells gave the tokens that they must, in a sentence."""
    differing = sum(c.differing for c in run.cells)
    failed = sum(len(c.errors) for c in run.cells)
    words = "Identical tokens in every way and at every batch size."
    if differing:
        words = f"{differing} outputs differ from the first of their decoder: near-ties that passes of other shapes round the other way."
    return f"{words} {failed} requests failed: {next(e for c in run.cells for e in c.errors)}" if failed else words


def markdown(run: BatchRun, decoder: str, decoding: bool) -> str:
    """The paper's tables 2-4 for one decoder: tokens/s, and the speed-up over greedy at the same batch size in brackets.

    decoding    leave the reading of prompts out, as the paper does; dynamic batches have no such figure
    """
    ways = run.ways(decoder, decoding)
    heads = ["batch", "greedy", *(WAYS[w].label for w in ways), "padding ratio", "least acceptance"]
    rows = []
    for size in run.sizes:
        row = [str(size), _figure(run.speed(BASELINE, size, "unpadded", decoding))]
        for way in ways:
            speed, times = (of(decoder, size, way, decoding) for of in (run.speed, run.speed_up))
            own = way in ways_at(size, ways)
            row.append(f"{_figure(speed)} ({_times(times)})" if own and speed else "")
        ratios = [c.padding_ratio for c in run.find(decoder, size, "vanilla") if c.padding_ratio is not None]
        rows.append(
            [
                *row,
                f"{statistics.fmean(ratios):.0%}" if ratios else MISSING,
                f"{run.least_acceptance(decoder, size):.2f}",
            ]
        )
    return as_markdown(heads, rows)


def findings(run: BatchRun) -> list[str]:
    """What was found, in sentences: the tokens, and the acceptance lengths of each decoder's samples."""
    return [verdict(run), *(f"{decoder.replace('_', ' ')}: {spread(run, decoder)}" for decoder in run.decoders)]


def spread(run: BatchRun, decoder: str) -> str:
    means = run.mean_acceptances(decoder)
    deviation = f", deviation {statistics.stdev(means):.2f}" if len(means) > 1 else ""
    return (
        f"{statistics.fmean(means):.2f} tokens a round, mean of {len(means)} samples that range from {min(means):.2f} to "
        f"{max(means):.2f}{deviation}."
    )


def as_markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---:"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def to_json(run: BatchRun) -> str:
    """Strict JSON, with every acceptance length."""
    return json.dumps(run.to_json(), ensure_ascii=False, allow_nan=False, indent=1)


def to_csv(run: BatchRun) -> str:
    """A row for each cell, unrounded; an empty field is a figure that there is none of."""
    rows = [
        {
            **asdict(cell),
            "tokens_per_second": cell.tokens_per_second,
            "decode_tokens_per_second": cell.decode_speed,
            "x_greedy": run.speed_up(cell.decoder, cell.batch_size, cell.way),
            "decode_x_greedy": run.speed_up(cell.decoder, cell.batch_size, cell.way, decoding=True),
            "least_acceptance": run.least_acceptance(cell.decoder, cell.batch_size),
            "errors": "; ".join(cell.errors),
        }
        for cell in run.cells
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _spread(
    cells: Sequence[Cell], value: Callable[[Cell], float | None], show: Callable[[float], str] = significant
) -> str:
    values = [value(c) for c in cells]
    if None in values:
        return MISSING
    deviation = f" ± {show(statistics.stdev(values))}" if len(values) > 1 else ""
    return show(statistics.fmean(values)) + deviation


def _same(cells: Sequence[Cell]) -> str:
    differing = sum(c.differing for c in cells)
    return f"{differing} differ" if differing else "yes"


def _times(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}×"


def _figure(value: float | None) -> str:
    return MISSING if value is None else significant(value)


WRITERS: dict[str, Callable[[BatchRun], str]] = {"json": to_json, "csv": to_csv}
