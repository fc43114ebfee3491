"""A request becomes an experiment: its plan spelled out, its models known (prepare)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.experiments import bench
from workbench.experiments.bench import Unit
from workbench.experiments.cells import Block, blocks, experiment_id
from workbench.experiments.plan import Plan
from workbench.experiments.request import Request
from workbench.experiments.rows import NEXT_TIMING
from workbench.experiments.sets import ScoredSet
from workbench.experiments.workers import Crew


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
    """

    id: str
    request: Request
    plan: Plan
    sets: Mapping[str, ScoredSet]
    blocks: Sequence[Block]
    environment: Mapping[str, Any]

    def unit(self, block: Block, item: int) -> Unit:
        """An item of a block, as a bench runs it."""
        prompts = block.items[item]
        texts = tuple(self.sets[block.prompts].text(i) for i in prompts)
        return Unit(block.cells[0].choice, block.ids, block.cells, item, prompts, texts)


def prepare(request: Request, crew: Crew) -> Experiment:
    """Read the plan, load its pairs once on a worker, and spell the plan out.

    Args:
        request: the request
        crew: the workers

    Raises:
        InputError: if the plan, its sets or its models cannot be used
    """
    plan, sets = request.read()
    facts: dict[Any, Any] = {}
    environment: dict[str, Any] = {"workers": crew.pool.says, "pairs": []}
    timed = any(part.timed for part in plan.parts)
    for choice in dict.fromkeys(choice for part in plan.parts for choice in part.pairs):
        found = crew.worker(0).submit("facts", choice, timed).result()
        facts[choice] = found["identity"]
        environment["pairs"].append(found["environment"])
    code = bench.code()
    spelled = blocks(plan, sets, facts, code)
    environment |= {"code": code, "sets": {name: s.revision for name, s in sets.items()}}
    return Experiment(experiment_id(spelled), request, plan, sets, spelled, environment)


def doing(block: Block, item: int) -> str:
    """One line about an item that is decoded now."""
    prompts, (again, place) = block.items[item], divmod(item, NEXT_TIMING)
    timings = 1 + max(block.items) // NEXT_TIMING
    count = sum(other // NEXT_TIMING == again for other in block.items)
    what = f"{'prompt' if len(prompts) == 1 else 'batch'} {place + 1} of {count}"
    says = f"{block.part}: {block.prompts}, {what}"
    return f"{says}, timing {again + 1} of {timings}" if timings > 1 else says
