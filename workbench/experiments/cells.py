"""A plan spelled out: cells, and the blocks in which cells that are compared run together."""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from decoders import Method, catalog
from workbench.experiments.plan import Part, Plan, pair_name, plain, settings
from workbench.experiments.sets import ScoredSet
from workbench.models.presets import PairChoice
from workbench.studies.schemes import ALONE, BASELINE, SCHEMES, baseline_scheme, batches, scheme_label, schemes_at
from workbench.studies.settings import Settings
from workbench.studies.study import Job


@dataclass(frozen=True)
class Cell:
    """One line of a table: a decoder with its settings, on one set of prompts, with one sampling, seed, batch size and scheme."""

    choice: PairChoice
    prompts: str
    settings: Settings
    batch_size: int = 1
    scheme: str = ALONE
    ignore_eos: bool = False
    timed: bool = True

    @property
    def method(self) -> Method:
        return self.settings.methods[0]

    def job(self, first: int) -> Job:
        """What is measured of the prompts from number `first` on."""
        seed = self.settings.seed + first
        return Job(self.method, 0, seed, self.batch_size, self.scheme, "lengths", self.ignore_eos)

    def to_json(self) -> dict[str, Any]:
        """Everything asked that can change the answer, and the names that readers need."""
        shared = {
            f: getattr(self.settings, f)
            for f in ("max_new_tokens", "temperature", "top_k", "top_p", "seed", "chat_template")
        }
        own = {name: plain(value) for name, value in dataclasses.asdict(self.method).items()}
        return {
            "pair": pair_name(self.choice), "prompts": self.prompts, "decoder": self.method.name, "settings": own, **shared,
            "batch_size": self.batch_size, "scheme": self.scheme, "ignore_eos": self.ignore_eos, "timed": self.timed,
        }  # fmt: skip


@dataclass(frozen=True)
class Block:
    """Cells that take turns on each item. Cells whose time counts share a block with greedy; others stand alone.

    id, ids   hashes: of the block, and of each cell;   items  for each item the prompts that are decoded together
    """

    part: str
    id: str
    ids: tuple[str, ...]
    labels: tuple[str, ...]
    cells: tuple[Cell, ...]
    items: tuple[tuple[int, ...], ...]

    @property
    def choice(self) -> PairChoice:
        return self.cells[0].choice

    @property
    def prompts(self) -> str:
        return self.cells[0].prompts


def restricted(plan: Plan, choice: PairChoice | None, limit: int | None) -> Plan:
    """The same plan on one pair, and with at most so many prompts of each set."""
    parts = plan.parts
    if choice is not None:
        parts = tuple(replace(part, pairs=(choice,)) for part in parts)
    if limit is not None:
        parts = tuple(replace(part, limit=min(limit, part.limit or limit)) for part in parts)
    return replace(plan, parts=parts)


def blocks(
    plan: Plan, sets: Mapping[str, ScoredSet], facts: Mapping[PairChoice, Mapping[str, Any]], code: str
) -> list[Block]:
    """The plan's blocks in the order they run.

    facts   for each pair what names its models, dtype and kind of device;   code  a hash of the sources of `decoders`
    """
    found, seen = [], set()
    for part in plan.parts:
        for cells in _groups(part):
            items = _items(part, cells[0], len(sets[cells[0].prompts].items))
            identity = {"code": code, "revision": sets[cells[0].prompts].revision, **facts[cells[0].choice]}
            block = _block(part, cells, items, identity)
            if (block.part, block.id) not in seen:
                seen.add((block.part, block.id))
                found.append(block)
    return found


def _block(part: Part, cells: Sequence[Cell], items: tuple[tuple[int, ...], ...], identity: Mapping[str, Any]) -> Block:
    each = [digest({**cell.to_json(), **identity}) for cell in cells]
    if cells[
        0
    ].timed:  # times count only beside those of the same block; a batch also depends on what it is filled up with
        whole = digest([sorted(each), len(items[-1]) > 1 and items])
        each = [digest([one, whole]) for one in each]
    else:
        whole = each[0]
    return Block(part.name, whole, tuple(each), tuple(label(cell, part) for cell in cells), tuple(cells), items)


def _groups(part: Part) -> Iterator[list[Cell]]:
    grid = itertools.product(part.pairs, part.prompts, part.temperature, part.top_k, part.top_p, part.seeds)
    for choice, prompts, temperature, top_k, top_p, seed in grid:

        def cell(
            method: Method,
            size: int,
            scheme: str,
            pair: PairChoice = choice,
            of: str = prompts,
            sampled: tuple[float, int, float, int] = (temperature, top_k, top_p, seed),
        ) -> Cell:
            return Cell(pair, of, settings(part, method, *sampled), size, scheme, part.ignore_eos, part.timed)

        if not part.timed:
            yield from ([cell(method, 1, ALONE)] for method in part.methods)
            continue
        others = [m for m in part.methods if m.name != BASELINE]
        for size in part.batch_sizes:
            for static in (True, False):
                if schemes := [s for s in schemes_at(size, part.schemes) if SCHEMES[s].static == static]:
                    greedy = cell(catalog[BASELINE](), size, baseline_scheme(schemes[0]))
                    yield [greedy, *(cell(m, size, s) for m in others for s in schemes)]


def _items(part: Part, cell: Cell, count: int) -> tuple[tuple[int, ...], ...]:
    """Batches, the last one filled up; dynamic batches are one item, because a finished request's place goes to the next one.
    All of them again for each further timing."""
    count = min(count, part.limit or count)
    size = cell.batch_size if SCHEMES[cell.scheme].static else count
    return tuple(map(tuple, batches(range(count), size))) * part.timings


def label(cell: Cell, part: Part) -> str:
    """The decoder, and what tells it from the other cells of its part: settings, sampling, batch size."""
    own = {f.name for f in dataclasses.fields(cell.method)}
    same = [m for m in part.methods if m.name == cell.method.name]
    varied = [n for n in sorted(own) if len({repr(getattr(m, n)) for m in same}) > 1]
    words = [" ".join([cell.method.name, *(f"{n}={_short(getattr(cell.method, n))}" for n in varied)])]
    for name, values in (("temperature", part.temperature), ("top_k", part.top_k), ("top_p", part.top_p)):
        if len(values) > 1:
            words.append(f"{name} {getattr(cell.settings, name):g}")
    if len(part.batch_sizes) > 1:
        words.append(f"batch {cell.batch_size}")
    if len(part.schemes) > 1 and cell.batch_size > 1:
        words.append(scheme_label(cell.method.name, cell.batch_size, cell.scheme))
    return ", ".join(words)


def _short(value: Any) -> str:
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value)


def digest(value: Any) -> str:
    """A short hash of plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def experiment_id(found: Iterable[Block]) -> str:
    """The same plan on the same pair, prompts and code is the same experiment."""
    return digest([[b.part, b.id, len(b.items)] for b in found])[:12]
