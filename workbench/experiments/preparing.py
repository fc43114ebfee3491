"""A request becomes an experiment: its plan spelled out, its models and servers known (prepare)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from workbench.experiments import bench
from workbench.experiments.bench import Unit
from workbench.experiments.block import Block
from workbench.experiments.cells import Cell, blocks, experiment_id
from workbench.experiments.engine_cells import (
    EngineCell,
    EngineUnit,
    Place,
    engine_blocks,
    places,
)
from workbench.experiments.plan import Plan
from workbench.experiments.request import Request
from workbench.experiments.rows import NEXT_TIMING
from workbench.experiments.sets import ScoredSet
from workbench.experiments.workers import Crew
from workbench.studies.chats import title

ServerKey = tuple[str, tuple[str, ...]]  # an engine's name and flags


@dataclass(frozen=True)
class Experiment:
    """A request whose models are known.

    Attributes:
        id: the experiment's id
        request: the request
        plan: its plan
        sets: the plan's sets of prompts by name
        blocks: the plan's blocks
        environment: workers, pairs, code and sets that it runs on, for reports
        servers: for each engine of the plan its server, which is never kept, and the name of the
            generator of load
    """

    id: str
    request: Request
    plan: Plan
    sets: Mapping[str, ScoredSet]
    blocks: Sequence[Block]
    environment: Mapping[str, Any]
    servers: Mapping[ServerKey, tuple[Place, str]] = field(default_factory=dict, repr=False)

    def task(self, block: Block, item: int) -> tuple[str, Unit | EngineUnit]:
        """The method of a bench that runs an item of a block, and what it is given."""
        prompts = block.items[item]
        texts = tuple(self.sets[block.prompts].text(i) for i in prompts)
        if isinstance(first := block.cells[0], EngineCell):
            loads = cast(tuple[EngineCell, ...], block.cells)
            server = self.servers[first.engine, first.flags]
            written = tuple(map(title, texts))
            return "serve", EngineUnit(block.ids, loads, item, prompts, written, *server)
        cells = cast(tuple[Cell, ...], block.cells)
        return "run", Unit(cells[0].choice, block.ids, cells, item, prompts, texts)


def prepare(request: Request, crew: Crew, starts: bool = False) -> Experiment:
    """Read the plan, load its pairs and ask its engines once on a worker, and spell the plan out.

    Args:
        request: the request
        crew: the workers
        starts: whether the plan may start servers, which runs commands

    Raises:
        InputError: if the plan, its sets, its models or its engines cannot be used
    """
    plan, sets = request.read()
    found_at = places(plan, starts)
    facts: dict[Any, Any] = {}
    environment: dict[str, Any] = {"workers": crew.pool.says, "pairs": []}
    timed = any(part.timed for part in plan.parts)
    for choice in dict.fromkeys(choice for part in plan.parts for choice in part.pairs):
        found = crew.worker(0).submit("facts", choice, timed).result()
        facts[choice] = found["identity"]
        environment["pairs"].append(found["environment"])
    code = bench.code()
    spelled = blocks(plan, sets, facts, code)
    servers = {}
    if plan.engines:
        told = _engine_facts(plan, found_at, crew)
        servers = {
            key: (found_at[key[0]], one["environment"]["generator"]) for key, one in told.items()
        }
        spelled += engine_blocks(plan, sets, {key: one["identity"] for key, one in told.items()})
        environment["engines"] = [one["environment"] for one in told.values()]
    environment |= {"code": code, "sets": {name: s.revision for name, s in sets.items()}}
    return Experiment(experiment_id(spelled), request, plan, sets, spelled, environment, servers)


def _engine_facts(
    plan: Plan, found_at: Mapping[str, Place], crew: Crew
) -> dict[ServerKey, dict[str, Any]]:
    """What each server is, by its name and flags."""
    found: dict[ServerKey, dict[str, Any]] = {}
    for engine in plan.engines:
        if (key := (engine.name, engine.flags)) not in found:
            length = next(iter(engine.draft_lengths), None)
            asked = found_at[engine.name], length, engine.flags
            found[key] = crew.worker(0).submit("engine_facts", *asked).result()
    return found


def doing(block: Block, item: int) -> str:
    """One line about an item that is decoded now."""
    prompts, (again, place) = block.items[item], divmod(item, NEXT_TIMING)
    timings = 1 + max(block.items) // NEXT_TIMING
    if isinstance(first := block.cells[0], EngineCell):
        drafts = f", draft length {first.draft_length}" if first.draft_length is not None else ""
        what = f"{len(prompts)} prompts{drafts}"
    else:
        count = sum(other // NEXT_TIMING == again for other in block.items)
        what = f"{'prompt' if len(prompts) == 1 else 'batch'} {place + 1} of {count}"
    says = f"{block.part}: {block.prompts}, {what}"
    return f"{says}, timing {again + 1} of {timings}" if timings > 1 else says
