"""What a report says of engines: the loads, the best draft lengths, energy."""

from collections.abc import Iterator, Sequence
from itertools import product

from workbench.experiments import figures
from workbench.experiments.charts import draw
from workbench.experiments.engine_energy import PARTS, spent
from workbench.experiments.engine_figures import FIGURES, TOKENS_PER_SECOND
from workbench.experiments.figures import Interval
from workbench.experiments.plan import PlanEngine
from workbench.experiments.report import Report, acceptance
from workbench.experiments.rows import Kept
from workbench.experiments.section import Content, Figure
from workbench.show import plots
from workbench.show.looks import look
from workbench.show.plots import Curve
from workbench.show.quantities import significant
from workbench.show.spread import MISSING
from workbench.show.tables import Table

SAYS = (
    "Brackets: 95% intervals by a bootstrap, of tokens/s over timings, of what each request has "
    "over prompts."
)
ESTIMATED = "Parts are estimated: passes times the costs that the plan states."
BEST = (
    "The draft length with the most tokens/s at each concurrency, and the flags that started its "
    "server. “unclear” marks a ratio whose interval includes 1, or of fewer than three timings: "
    "after a draft length, its ratio to the next best one."
)


def engines(found: Report) -> list[Content]:
    """The content of the section on engines; [] if no load has ended."""
    parts = [engine for engine in found.plan.engines if found.begun(engine.part)]
    if not parts:
        return []
    accepted = [acceptance(found, engine.part) for engine in parts]
    content: list[Content | None] = [
        *(engine.about for engine in parts),
        *best(found, parts),
        loads(found, parts),
        SAYS,
        *energy(found, parts),
        *accepted,
        _remarks(found, parts),
        *(chart for engine in parts for chart in _charts(found, engine)),
        *(
            Figure(chart)
            for drawing in found.plan.drawings
            if drawing.part in {engine.part for engine in parts}
            for chart in draw(found, drawing)
        ),
    ]
    return [each for each in content if each]


def loads(found: Report, parts: Sequence[PlanEngine]) -> Table:
    """A row for each cell; figures that no cell has are left out."""
    cells = [(engine, cell) for engine in parts for cell in found.begun(engine.part)]
    values = {cell.cell: {f.name: f.of(cell) for f in FIGURES} for _, cell in cells}
    names = [f.name for f in FIGURES if any(each[f.name] for each in values.values())]
    heads, rows = _places(found, cells)
    for (_, cell), row in zip(cells, rows, strict=True):
        failed = sum(bool(each.errors) for each in cell.rows.values())
        row.append(f"{len(cell.rows)}" + (f", {failed} failed" if failed else ""))
        row += [_shown(values[cell.cell][name]) for name in names]
    return Table([*heads, "timings", *names], rows)


def _places(
    found: Report, cells: Sequence[tuple[PlanEngine, Kept]]
) -> tuple[list[str], list[list[str]]]:
    """What tells cells apart: heads, and a row for each cell."""
    several = len({cell.asked["prompts"] for _, cell in cells}) > 1
    drafts = any("draft_length" in cell.asked["settings"] for _, cell in cells)
    heads = ["engine", *(["prompts"] if several else []), *(["draft length"] if drafts else [])]
    rows = []
    for engine, cell in cells:
        length = cell.asked["settings"].get("draft_length")
        rows.append(
            [
                engine.part,
                *([cell.asked["prompts"]] if several else []),
                *([MISSING if length is None else str(length)] if drafts else []),
                str(cell.asked["settings"]["concurrency"]),
            ]
        )
    return [*heads, "concurrency"], rows


def _shown(value: Interval | None) -> str:
    """ "1.62 (1.55 to 1.70)"."""
    if value is None:
        return MISSING
    text = significant(value.value)
    if value.low == value.high:
        return text
    return f"{text} ({significant(value.low)} to {significant(value.high)})"


def best(found: Report, parts: Sequence[PlanEngine]) -> Iterator[Content]:
    """The best draft length at each concurrency, and the flags that the engine takes for it."""
    rows, flags = [], dict[tuple[str, str], list[str]]()
    for engine in parts:
        for prompts, size in product(engine.prompts, engine.concurrency):
            same = (prompts, size)
            cells = [
                cell
                for cell in found.of_part(engine.part)
                if (cell.asked["prompts"], cell.asked["batch_size"]) == same and _speed(cell)
            ]
            if len(cells) < 2:
                continue
            name = engine.part if len(engine.prompts) == 1 else f"{engine.part}, {prompts}"
            chosen = max(cells, key=_fast)
            rows.append([name, str(size), *_best(chosen, cells)])
            flags.setdefault((name, _flag(chosen)), []).append(str(size))
    if rows:
        yield BEST
        yield Table(
            ["engine", "concurrency", "draft length", TOKENS_PER_SECOND, "over no draft"], rows
        )
        yield [
            f"{name}, concurrency {', '.join(sizes)}: {flag}"
            for (name, flag), sizes in flags.items()
        ]


def _best(chosen: Kept, cells: Sequence[Kept]) -> list[str]:
    """Its draft length, its speed, and how that compares with drafting nothing."""
    plain = next((c for c in cells if c.asked["settings"]["draft_length"] == 0), None)
    words = MISSING
    if plain and plain is not chosen and (gain := over(chosen, plain)):
        words = f"{_shown(gain)}{_doubt(chosen, plain)}"
    second = max((cell for cell in cells if cell is not chosen), key=_fast)
    length = f"{chosen.asked['settings']['draft_length']}{_doubt(chosen, second)}"
    return [length, _shown(_speed(chosen)), words]


def _doubt(cell: Kept, other: Kept) -> str:
    """ ", unclear" unless the timings of both cells show that one of them is faster."""
    gain, few = over(cell, other), len(figures.common(cell, other)) < figures.LEAST_ITEMS
    return ", unclear" if few or gain is None or gain.low <= 1 <= gain.high else ""


def _flag(cell: Kept) -> str:
    """The flags that its server drafts by."""
    settings = (row.result.settings for row in figures.good(cell).values())
    return next((str(each["flag"]) for each in settings if "flag" in each), "no flag")


def _fast(cell: Kept) -> float:
    return speed.value if (speed := _speed(cell)) else 0.0


def _speed(cell: Kept) -> Interval | None:
    return figures.figure(TOKENS_PER_SECOND, cell)


def over(cell: Kept, plain: Kept) -> Interval | None:
    """Tokens/s of a cell divided by those of another, on the timings of both."""
    items = figures.common(cell, plain)
    one, other = (figures.resampled(TOKENS_PER_SECOND, c, None, items) for c in (cell, plain))
    return figures.interval(one / other) if one is not None and other is not None else None


def energy(found: Report, parts: Sequence[PlanEngine]) -> Iterator[Content]:
    """The energy of each cell, or the reason why it is not known."""
    cells = [(engine, cell) for engine in parts for cell in found.begun(engine.part)]
    known = [(engine, cell, spent(cell, engine.costs)) for engine, cell in cells]
    measured = [(engine, cell, each) for engine, cell, each in known if each]
    if not measured:
        if sources := _sources([cell for _, cell in cells]):
            yield f"Energy: {sources}."
        return
    heads, rows = _places(found, [(engine, cell) for engine, cell, _ in measured])
    split = any(each.parts for _, _, each in measured)
    for (_, _, each), row in zip(measured, rows, strict=True):
        row += map(_shown, (each.joules, each.per_token, each.per_accepted))
        if split:
            row += [significant(each.parts[name]) if each.parts else MISSING for name in PARTS]
    names = [f"{name}, J (estimated)" for name in PARTS] if split else []
    yield Table([*heads, "J of a load", "J/token", "J/accepted token", *names], rows)
    sources = _sources([cell for _, cell, _ in measured])
    yield f"Energy: {sources}. {ESTIMATED if split else ''}".strip()


def _sources(cells: Sequence[Kept]) -> str:
    rows = [row for cell in cells for row in figures.good(cell).values()]
    return "; ".join(sorted({row.result.energy.source for row in rows}))


def _remarks(found: Report, parts: Sequence[PlanEngine]) -> list[str]:
    rows = (row for e in parts for cell in found.begun(e.part) for row in cell.rows.values())
    said = dict.fromkeys(remark for row in rows for remark in row.result.remarks)
    return [*said, *(f"{figure.name}: {figure.meaning}" for figure in FIGURES)]


def _charts(found: Report, engine: PlanEngine) -> Iterator[Figure]:
    """Tokens/s by concurrency, a line for each draft length and set."""
    lines: dict[str, dict[float, tuple[float, float, float]]] = {}
    for cell in found.of_part(engine.part):
        length, speed = cell.asked["settings"].get("draft_length"), _speed(cell)
        name = engine.part if length is None else f"draft length {length}"
        name = name if len(engine.prompts) == 1 else f"{name}, {cell.asked['prompts']}"
        if speed:
            points = lines.setdefault(name, {})
            points[cell.asked["batch_size"]] = (speed.value, speed.low, speed.high)
    if any(len(points) > 1 for points in lines.values()):
        curves = [
            Curve(name, look(i), dict(sorted(points.items())))
            for i, (name, points) in enumerate(lines.items())
        ]
        title = f"{engine.part}: tokens/s by concurrency"
        says = "Whiskers: 95% intervals over timings."
        yield Figure(plots.curves(title, says, curves, "concurrency", TOKENS_PER_SECOND))


def engine_facts(found: Report) -> list[tuple[str, str]]:
    """Name and value of each fact about the engines."""
    rows = []
    for engine in found.environment.get("engines", []):
        words = [
            f"{engine['kind']} {engine['version'] or 'of unknown version'}",
            f"serves {engine['model']}" if engine.get("model") else "",
            "started for this plan" if engine.get("started") else "was running",
            f"flags {engine['flags']}" if engine.get("flags") else "",
            f"load by {engine['generator']}, on {engine['host']}",
        ]
        rows.append((f"engine {engine['name']}", "; ".join(filter(None, words))))
    return rows
