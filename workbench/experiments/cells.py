"""A plan spelled out: cells, and the blocks in which cells that are compared run together."""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from decoders import Method, catalog
from workbench.experiments.plan import GRID, Plan, Sweep, pair_name, settings
from workbench.experiments.sets import ScoredSet
from workbench.models.presets import PairChoice
from workbench.runs.store import NEXT_TIMING
from workbench.studies import study
from workbench.studies.settings import WARPING, Settings


@dataclass(frozen=True)
class Cell:
    """One line of a table: one decoder with its settings on one set of prompts.

    Attributes:
        choice: the pair
        prompts: name of the set of prompts
        settings: the decoder, its sampling and its seed
        batch_size: requests decoded at once
        scheme: how they share a batch
        ignore_eos: whether texts go on after an end token
        timed: whether its speed counts
    """

    choice: PairChoice
    prompts: str
    settings: Settings
    batch_size: int = 1
    scheme: str = study.ALONE
    ignore_eos: bool = False
    timed: bool = True

    @property
    def method(self) -> Method:
        return self.settings.methods[0]

    def job(self, first: int) -> study.Job:
        seed = self.settings.seed + first
        return study.Job(
            self.method, 0, seed, self.batch_size, self.scheme, "lengths", self.ignore_eos
        )

    def to_json(self) -> dict[str, Any]:
        """All settings that can change the answer, and the names that readers need."""
        shared = ("max_new_tokens", *WARPING, "seed", "chat_template", "system")
        own = ("batch_size", "scheme", "ignore_eos", "timed")
        return {
            "pair": pair_name(self.choice),
            "prompts": self.prompts,
            "decoder": self.method.name,
            "settings": asdict(self.method),
            **{name: getattr(self.settings, name) for name in shared},
            **{name: getattr(self, name) for name in own},
        }


@dataclass(frozen=True)
class CellBlock:
    """Cells that take turns on each item.

    Timed cells share a block with greedy; each other cell has its own.

    Attributes:
        part: name of the part of the plan
        id: hash of the block
        ids: hash of each cell
        labels: label of each cell
        cells: the cells
        items: by number, in the order in which they run, the prompts that are decoded together; a
            number means the same prompts under any limit
    """

    part: str
    id: str
    ids: tuple[str, ...]
    labels: tuple[str, ...]
    cells: tuple[Cell, ...]
    items: Mapping[int, tuple[int, ...]]

    @property
    def prompts(self) -> str:
        return self.cells[0].prompts


def blocks(
    plan: Plan,
    sets: Mapping[str, ScoredSet],
    facts: Mapping[PairChoice, Mapping[str, Any]],
    code: str,
) -> list[CellBlock]:
    """The plan's blocks in the order in which they run.

    Args:
        facts: for each pair its models, dtype and kind of device, see `identity`
        code: a hash of the sources of `decoders`
    """
    known: dict[tuple[str, str], CellBlock] = {}
    for part in plan.parts:
        for cells in _groups(part):
            scored = sets[cells[0].prompts]
            items = _items(part, cells[0], len(scored.items))
            identity = {"code": code, "revision": scored.revision, **facts[cells[0].choice]}
            block = _block(part, cells, items, identity)
            known.setdefault((block.part, block.id), block)
    return list(known.values())


def _block(
    part: Sweep,
    cells: Sequence[Cell],
    items: Mapping[int, tuple[int, ...]],
    identity: Mapping[str, Any],
) -> CellBlock:
    # another head changes what it drafts, and nothing else
    facts = [
        {k: v for k, v in identity.items() if k != "head" or c.method.uses_head} for c in cells
    ]
    each = [digest({**c.to_json(), **known}) for c, known in zip(cells, facts, strict=True)]
    if cells[0].timed:
        # Times count only beside those of the same block, and a batch depends on all its prompts.
        together = list(items.values())
        whole = digest([sorted(each), len(together[-1]) > 1 and together])
        each = [digest([one, whole]) for one in each]
    else:
        whole = each[0]
    labels = tuple(label(cell, part) for cell in cells)
    return CellBlock(part.name, whole, tuple(each), labels, tuple(cells), items)


def _groups(part: Sweep) -> Iterator[list[Cell]]:
    grid: Iterable[Any] = itertools.product(part.pairs, part.prompts, *part.sampled)
    for choice, prompts, *sampled in grid:
        cell = partial(_cell, part, choice, prompts, sampled)
        if not part.timed:
            yield from ([cell(method, 1, study.ALONE)] for method in part.methods)
            continue
        others = [m for m in part.methods if m.name != study.BASELINE]
        for size in part.batch_sizes:
            for static in (True, False):
                every = study.schemes_at(size, part.schemes)
                if alike := [s for s in every if study.SCHEMES[s].static == static]:
                    usual = study.baseline_scheme(alike[0])
                    greedy = cell(catalog[study.BASELINE](), size, usual)
                    yield [greedy, *(cell(m, size, s) for m in others for s in alike)]


def _cell(
    part: Sweep, choice: PairChoice, prompts: str, sampled: Sequence[Any], method: Method,
    size: int, scheme: str,
) -> Cell:  # fmt: skip
    own = settings(part, method, *sampled)
    return Cell(choice, prompts, own, size, scheme, part.ignore_eos, part.timed)


def _items(part: Sweep, cell: Cell, count: int) -> dict[int, tuple[int, ...]]:
    """Batches, the last one filled up, and all of them again for each further timing.

    Dynamic batches are one item, because a finished request's place goes to the next one.
    """
    count = min(count, part.limit or count)
    size = cell.batch_size if study.SCHEMES[cell.scheme].static else count
    return {
        NEXT_TIMING * again + i: batch
        for again in range(part.timings)
        for i, batch in enumerate([tuple(batch) for batch in study.batches(range(count), size)])
    }


def label(cell: Cell, part: Sweep) -> str:
    """The decoder, with the settings, sampling and batch size in which cells of its part differ."""
    same = [asdict(m) for m in part.methods if m.name == cell.method.name]
    own = [cell.method.name]
    for name, value in sorted(asdict(cell.method).items()):
        if len({repr(each[name]) for each in same}) > 1:
            short = "-".join(map(str, value)) if isinstance(value, tuple) else value
            own.append(f"{name}={short}")
    grids = [name for name in GRID if len(getattr(part, name)) > 1]
    words = [" ".join(own), *(f"{name} {getattr(cell.settings, name):g}" for name in grids)]
    if len(part.batch_sizes) > 1:
        words.append(f"batch {cell.batch_size}")
    if len(part.schemes) > 1 and cell.batch_size > 1:
        words.append(study.scheme_label(cell.method.name, cell.batch_size, cell.scheme))
    return ", ".join(words)


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def experiment_id(every: Iterable[CellBlock]) -> str:
    """An id that is the same for the same plan, pair, prompts and code."""
    return digest([[b.part, b.id, len(b.items)] for b in every])[:12]
