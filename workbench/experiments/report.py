"""An experiment's findings as tables and sentences, made from the journal even while it runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.experiments import figures, plan_file
from workbench.experiments.figures import Interval
from workbench.experiments.formats import FORMATS
from workbench.experiments.journal import Journal, Progress
from workbench.experiments.plan import Ordering, Plan, Printed
from workbench.experiments.rows import Kept
from workbench.experiments.scores import SCORE_NAMES
from workbench.show.quantities import FIGURES, significant
from workbench.show.spread import MISSING
from workbench.show.tables import Table
from workbench.studies.schemes import BASELINE, PADDED
from workbench.studies.text import counted


@dataclass(frozen=True)
class Judged:
    """An ordering of a paper, tested on the rows.

    Attributes:
        ordering: the ordering
        verdict: "reproduced", "not reproduced", "undecided" or "not measured"
        words: the figures of both cells and their difference, or the reason why there are none
    """

    ordering: Ordering
    verdict: str
    words: str


@dataclass(frozen=True)
class Report:
    """An experiment with all its rows.

    Attributes:
        name: name of its files
        plan: its plan
        progress: its progress
        environment: workers, pairs, code and sets that it ran on
        cells: all cells with their rows, in order
    """

    name: str
    plan: Plan
    progress: Progress
    environment: dict[str, Any]
    cells: Sequence[Kept]
    _known: dict[tuple[str, str, str], Interval | None] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def of_part(self, part: str) -> list[Kept]:
        """The cells of a part."""
        return [cell for cell in self.cells if cell.part == part]

    def begun(self, part: str) -> list[Kept]:
        """The cells of a part that have a row."""
        return [cell for cell in self.of_part(part) if cell.rows]

    @property
    def unfinished(self) -> bool:
        return self.progress.done < self.progress.total

    def varied(self, part: str) -> list[str]:
        """Those of pair, set and seed of which a part has several."""
        cells, keys = self.of_part(part), ("pair", "prompts", "seed")
        return [key for key in keys if len({cell.asked[key] for cell in cells}) > 1]

    def names(self, part: str) -> dict[str, str]:
        """For each cell of a part its label, with the pair, set or seed if the part has several."""
        keys = self.varied(part)
        return {
            c.cell: ", ".join([c.label, *(_value(c, key) for key in keys)])
            for c in self.of_part(part)
        }

    def figure(self, name: str, cell: Kept) -> Interval | None:
        """A figure of a cell; None if the cell does not have it."""
        key = (name, cell.part, cell.cell)
        if key not in self._known:
            self._known[key] = figures.figure(name, cell, figures.greedy_of(cell, self.cells))
        return self._known[key]


def _value(cell: Kept, key: str) -> str:
    return f"seed {cell.asked[key]}" if key == "seed" else str(cell.asked[key])


def report(journal: Journal, id: str) -> Report:
    """The report of an experiment.

    Raises:
        InputError: if there is no such experiment
    """
    asked = journal.experiment(id)
    plan, cells = plan_file.parse(asked.request.plan, asked.request.file), journal.kept(id)
    return Report(f"{plan.name}-{id}", plan, journal.progress(id), asked.environment, cells)


def table(found: Report, part: str) -> Table:
    """A row for each cell of a part that has begun; figures that no cell has are left out."""
    cells, keys = found.begun(part), found.varied(part)
    names = [n for n in FIGURES if any(found.figure(n, c) for c in cells)]
    scores = {FORMATS[c.asked["prompts"]].scorer for c in cells if c.asked["prompts"] in FORMATS}
    score = SCORE_NAMES.get(scores.pop(), "score") if len(scores) == 1 else "score"
    rows = []
    for cell in cells:
        failed = sum(bool(row.errors) for row in cell.rows.values())
        done = f"{len(cell.rows)}" + (f", {failed} failed" if failed else "")
        shared = [str(cell.asked[key]) for key in keys]
        rows.append([cell.label, *shared, done, *(shown(found.figure(n, cell), n) for n in names)])
    return Table(["decoder", *keys, "items", *(score if n == "score" else n for n in names)], rows)


def shown(interval: Interval | None, name: str) -> str:
    """ "1.62 (1.55 to 1.70)"; "–" if there is none."""
    if interval is None:
        return MISSING
    text = significant(interval.value)
    if not name or not FIGURES[name].ranged or interval.low == interval.high:
        return text
    return f"{text} ({significant(interval.low)} to {significant(interval.high)})"


def by_category(found: Report, part: str, name: str = "x greedy") -> Table | None:
    """A figure of each cell by category; None if the prompts have none."""
    cells, called = found.begun(part), found.names(part)
    names = sorted({category for cell in cells for category in figures.categories(cell)})
    if len(names) < 2 or len(names) > 20:
        return None
    rows = []
    for cell in cells:
        values = figures.by_category(name, cell, found.cells, names)
        rows.append([called[cell.cell], *(shown(v, name) for v in values)])
    return Table([f"{name} by category", *names], rows)


def padding(found: Report, part: str) -> Table | None:
    """The speed of each other scheme over that of padded batches, on the same batches.

    Returns:
        the table, None if there are no padded batches
    """
    cells, names, rows = found.of_part(part), found.names(part), []
    for cell in cells:
        asked = {**cell.asked, "scheme": PADDED}
        padded = next(
            (c for c in cells if c.block == cell.block and c.asked == asked and c is not cell), None
        )
        if padded and cell.asked["decoder"] != BASELINE:
            ratio = figures.figure(figures.TIMES_GREEDY, cell, padded)
            rows.append([names[cell.cell], shown(ratio, figures.TIMES_GREEDY)])
    return Table(["decoder", "tokens/s over those with padding"], rows) if rows else None


def acceptance(found: Report, part: str) -> Table | None:
    """Mean tokens per round, and the share of rounds accepted beyond each place of the draft."""
    rows, names, cells = [], found.names(part), found.of_part(part)
    least = min((c.asked["batch_size"] for c in cells), default=1)
    for cell in cells:
        if cell.asked["batch_size"] > least:
            continue  # a round's gain does not depend on the batch
        shares = figures.accepted_by_position(cell)
        if shares and (mean := figures.mean_gained(cell)) is not None:
            rows.append([names[cell.cell], *(f"{x:.2f}" for x in (mean, *shares[:8]))])
    if not rows:
        return None
    width = max(map(len, rows))
    heads = ["decoder", "tokens/round", *(f"place {i}" for i in range(1, width - 1))]
    return Table(heads, [row + [""] * (width - len(row)) for row in rows])


def beside(found: Report, printed: Printed) -> Table:
    """The paper's printed figures beside ours, a row for each label."""
    cells, rows = list(found.cells), []
    for key, wanted in (("prompts", printed.prompts), ("pair", printed.pair)):
        cells = [c for c in cells if c.asked[key] == wanted] or cells
    for label, values in printed.rows.items():
        ours = next((c for c in cells if c.label == label), None) or next(
            (c for c in cells if c.asked["decoder"] == label), None
        )
        rows.append([label])
        for name, value in zip(printed.columns, values, strict=True):
            here = shown(found.figure(name, ours) if ours else None, "")
            rows[-1] += [MISSING if value is None else f"{value:g}", here]
    heads = [f"{name}, {who}" for name in printed.columns for who in ("paper", "here")]
    return Table(["", *heads], rows)


def judged(found: Report) -> list[Judged]:
    """Each ordering of the plan, tested on the rows."""
    return [_judge(found, ordering) for ordering in found.plan.orderings]


def _judge(found: Report, ordering: Ordering) -> Judged:
    cells = {c.label: c for c in reversed(found.of_part(ordering.part))}
    less, than = cells.get(ordering.less), cells.get(ordering.than)
    if less is None or than is None:
        missing = ordering.less if less is None else ordering.than
        return Judged(ordering, "not measured", f"no cell is labelled {missing!r}")
    among = figures.categories(less).get(ordering.category, []) if ordering.category else None
    gap = figures.below(ordering.figure, less, than, found.cells, among)
    low, high = (
        figures.figure(ordering.figure, cell, figures.greedy_of(cell, found.cells), among)
        for cell in (less, than)
    )
    if gap is None or low is None or high is None:
        return Judged(ordering, "not measured", f"{ordering.figure} is not known for both")
    few = len(figures.common(less, than, among=among)) < figures.LEAST_ITEMS
    verdict = "reproduced" if gap.low > 0 else "not reproduced" if gap.high < 0 else "undecided"
    where = ", ".join(_value(less, key) for key in found.varied(ordering.part))
    words = (
        f"{f'on {where}: ' if where else ''}{ordering.figure} is {significant(low.value)} with "
        f'"{ordering.less}" and {significant(high.value)} with "{ordering.than}", a difference of '
        f"{significant(gap.value)} ({significant(gap.low)} to {significant(gap.high)})"
    )
    return Judged(ordering, "undecided" if few else verdict, words)


def facts(found: Report) -> list[tuple[str, str]]:
    """Name and value of each fact about the machine, the models, the code and the sets."""
    now, where = found.progress, found.environment
    done = "items done when this was drawn" if now.running else "items done"
    rows = [
        ("experiment", now.id),
        ("begun (UTC)", now.created),
        (done, f"{now.done} of {now.total}"),
        *([("failed", counted(now.failed, "row"))] if now.failed else []),
        ("workers", str(where.get("workers", ""))),
        ("code of the decoders", str(where.get("code", ""))),
        *((f"prompts {name}", f"revision {r}") for name, r in where.get("sets", {}).items()),
    ]
    for pair in where.get("pairs", []):
        names = [str(pair[role]["name"]) for role in ("target", "draft", "head") if pair.get(role)]
        words = [
            " + ".join(names),
            *(pair.get(k) for k in ("device_name", "dtype", "host", "platform")),
            f"{pair.get('threads')} threads of {pair.get('cpus')}",
            f"torch {pair.get('torch')}",
        ]
        rows.append(("pair", "; ".join(str(word) for word in words if word)))
        if pair.get("idle_power"):
            rows.append(("idle power", pair["idle_power"]))
    return rows
