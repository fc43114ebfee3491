"""What an experiment found, as tables and sentences; made from the journal alone, also while it runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.experiments import figures, plan_file
from workbench.experiments.figures import Interval
from workbench.experiments.formats import FORMATS
from workbench.experiments.journal import Journal, Kept, Progress
from workbench.experiments.plan import FIGURES, Ordering, Plan, Printed
from workbench.experiments.scores import SCORE_NAMES
from workbench.show.quantities import significant
from workbench.show.spread import MISSING
from workbench.show.tables import Table
from workbench.studies.schemes import BASELINE, PADDED
from workbench.studies.text import counted

RANGED = {"x greedy", "perplexity", "score", "tokens/s"}


@dataclass(frozen=True)
class Judged:
    """An ordering of a paper, and what the rows say: "reproduced", "not reproduced", "undecided" or "not measured"."""

    ordering: Ordering
    verdict: str
    words: str


@dataclass(frozen=True)
class Report:
    """name   of its files;   cells  all cells with their rows, in order"""

    name: str
    plan: Plan
    progress: Progress
    environment: dict[str, Any]
    cells: Sequence[Kept]
    _known: dict[tuple[str, str, str], Interval | None] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def of_part(self, part: str) -> list[Kept]:
        return [cell for cell in self.cells if cell.part == part]

    def figure(self, name: str, cell: Kept) -> Interval | None:
        key = (name, cell.part, cell.cell)
        if key not in self._known:
            self._known[key] = figures.figure(name, cell, figures.greedy_of(cell, self.cells))
        return self._known[key]


def report(journal: Journal, id: str) -> Report:
    """Raises InputError if there is no such experiment."""
    kept = journal.experiment(id)
    plan = plan_file.parse(kept["request"]["plan"], kept["request"]["file"])
    return Report(f"{plan.name}-{id}", plan, journal.progress(id), kept["environment"], journal.kept(id))


def table(found: Report, part: str) -> Table:
    """A row for each cell of a part; figures that no cell has are left out."""
    cells = found.of_part(part)
    several = [len({c.asked[key] for c in cells}) > 1 for key in ("pair", "prompts", "seed")]
    names = [n for n in FIGURES if any(found.figure(n, c) for c in cells)]
    heads = ["decoder", *(k for k, s in zip(("pair", "prompts", "seed"), several, strict=True) if s), "items"]
    scores = {FORMATS[c.asked["prompts"]].scorer for c in cells if c.asked["prompts"] in FORMATS}
    score = SCORE_NAMES.get(scores.pop(), "score") if len(scores) == 1 else "score"
    rows = []
    for cell in cells:
        where = [str(cell.asked[k]) for k, s in zip(("pair", "prompts", "seed"), several, strict=True) if s]
        failed = sum(bool(row.errors) for row in cell.rows.values())
        done = f"{len(cell.rows)}" + (f", {failed} failed" if failed else "")
        rows.append([cell.label, *where, done, *(shown(found.figure(n, cell), n) for n in names)])
    return Table([*heads, *(score if n == "score" else n for n in names)], rows)


def shown(interval: Interval | None, name: str) -> str:
    """ "1.62 (1.55 to 1.70)"; "–" if there is none."""
    if interval is None:
        return MISSING
    text = significant(interval.value)
    if name not in RANGED or interval.low == interval.high:
        return text
    return f"{text} ({significant(interval.low)} to {significant(interval.high)})"


def by_category(found: Report, part: str, name: str = "x greedy") -> Table | None:
    """A figure of each cell by category; None if the prompts have none."""
    cells = found.of_part(part)
    names = sorted({category for cell in cells for category in figures.categories(cell)})
    if len(names) < 2 or len(names) > 20:
        return None
    rows = []
    for cell in cells:
        greedy, items = figures.greedy_of(cell, found.cells), figures.categories(cell)
        values = [figures.figure(name, cell, greedy, items.get(category, [])) for category in names]
        rows.append([cell.label, *(shown(v, name) for v in values)])
    return Table(["decoder", *names], rows)


def padding(found: Report, part: str) -> Table | None:
    """The speed of each other scheme over that of padded batches, on the same batches; None if there are no padded ones."""
    cells, rows = found.of_part(part), []
    for cell in cells:
        asked = {**cell.asked, "scheme": PADDED}
        padded = next((c for c in cells if c.block == cell.block and c.asked == asked and c is not cell), None)
        if padded and cell.asked["decoder"] != BASELINE:
            ratio = figures.figure(figures.TIMES_GREEDY, cell, padded)
            rows.append([cell.label, shown(ratio, figures.TIMES_GREEDY)])
    return Table(["decoder", "tokens/s over those with padding"], rows) if rows else None


def acceptance(found: Report, part: str) -> Table | None:
    """Mean tokens per round, and the share of rounds that were accepted beyond each place of the draft."""
    rows, longest = [], 0
    least = min((c.asked["batch_size"] for c in found.of_part(part)), default=1)
    for cell in found.of_part(part):
        if cell.asked["batch_size"] > least:
            continue  # what a round gains does not depend on the batch
        shares = figures.accepted_by_position(cell)
        if shares and (mean := figures.mean_gained(cell)) is not None:
            rows.append([cell.label, f"{mean:.2f}", *(f"{s:.2f}" for s in shares[:8])])
            longest = max(longest, len(rows[-1]) - 2)
    padded = [[*row, *[""] * (longest + 2 - len(row))] for row in rows]
    return Table(["decoder", "tokens/round", *(f"place {i}" for i in range(1, longest + 1))], padded) if rows else None


def beside(found: Report, printed: Printed) -> Table:
    """The paper's printed figures beside ours, a row for each label."""
    cells = [c for c in found.cells if c.asked["prompts"] == printed.prompts] or list(found.cells)
    rows = []
    for label, values in printed.rows.items():
        ours = next((c for c in cells if c.label == label), None) or next(
            (c for c in cells if c.asked["decoder"] == label), None
        )
        row = [label]
        for name, value in zip(printed.columns, values, strict=True):
            row += [MISSING if value is None else f"{value:g}", shown(found.figure(name, ours) if ours else None, "")]
        rows.append(row)
    return Table(["", *(f"{name}, {who}" for name in printed.columns for who in ("paper", "here"))], rows)


def judged(found: Report) -> list[Judged]:
    """Each ordering of the plan, tested on the rows."""
    return [_judge(found, ordering) for ordering in found.plan.orderings]


def _judge(found: Report, ordering: Ordering) -> Judged:
    cells = {c.label: c for c in reversed(found.of_part(ordering.part))}
    less, than = cells.get(ordering.less), cells.get(ordering.than)
    if less is None or than is None:
        missing = ordering.less if less is None else ordering.than
        return Judged(ordering, "not measured", f"no cell is labelled {missing!r}")
    gap = figures.below(ordering.figure, less, than, found.cells)
    low, high = (found.figure(ordering.figure, cell) for cell in (less, than))
    if gap is None or low is None or high is None:
        return Judged(ordering, "not measured", f"there is no {ordering.figure} of both")
    few = len(figures.common(less, than)) < figures.LEAST_ITEMS
    verdict = "undecided" if few else "reproduced" if gap.low > 0 else "not reproduced" if gap.high < 0 else "undecided"
    words = (
        f'{ordering.figure} is {significant(low.value)} with "{ordering.less}" and {significant(high.value)} with '
        f'"{ordering.than}", a difference of {significant(gap.value)} ({significant(gap.low)} to {significant(gap.high)})'
    )
    return Judged(ordering, verdict, words)


def facts(found: Report) -> list[tuple[str, str]]:
    """What it was measured on."""
    now, where = found.progress, found.environment
    rows = [("experiment", now.id), ("begun (UTC)", now.created), ("items done", f"{now.done} of {now.total}")]
    if now.failed:
        rows.append(("failed", counted(now.failed, "row")))
    rows += [("workers", str(where.get("workers", ""))), ("code of the decoders", str(where.get("code", "")))]
    for name, revision in where.get("sets", {}).items():
        rows.append((f"prompts {name}", f"revision {revision}"))
    for pair in where.get("pairs", []):
        models = " + ".join(str(pair[role]["name"]) for role in ("target", "draft") if pair.get(role))
        told = [pair.get(k) for k in ("device_name", "dtype", "host", "platform")]
        told += [f"{pair.get('threads')} threads of {pair.get('cpus')}", f"torch {pair.get('torch')}"]
        rows.append(("pair", "; ".join(str(t) for t in (models, *told) if t)))
        if pair.get("idle_power"):
            rows.append(("idle power", pair["idle_power"]))
    return rows


def errors(found: Report) -> list[str]:
    """One sentence for each kind of failure, with how often it happened."""
    counts: dict[str, int] = {}
    for cell in found.cells:
        for row in cell.rows.values():
            for error in row.errors:
                key = f"{cell.part}, {cell.label}: {error}"
                counts[key] = counts.get(key, 0) + 1
    return [f"{words} ({counted(count, 'time')})" for words, count in counts.items()]
