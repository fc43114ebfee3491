"""The engines of a plan spelled out: cells, blocks, and the servers that their names mean."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from decoders import InputError
from decoders.errors import quoted
from decoders.settings import nearest
from workbench.engines.addresses import FILE, LISTED, Engine, engines, starters
from workbench.engines.starters import Starter
from workbench.experiments.block import Block, digest
from workbench.experiments.plan import Plan, PlanEngine
from workbench.experiments.sets import ScoredSet
from workbench.runs.database import NEXT_TIMING
from workbench.studies.methods import Served
from workbench.studies.study import Job

SCHEME = "dynamic"  # the next request takes a finished one's place at once
Place = Engine | Starter
T = TypeVar("T")


@dataclass(frozen=True)
class EngineCell:
    """One line of a table: a server under one load.

    Attributes:
        engine: its name
        prompts: name of the set of prompts
        concurrency: requests at once
        draft_length: number of draft tokens, None if the server runs already
        flags: more words of the command that starts it
        max_new_tokens: the most tokens of a text
        temperature: sampling temperature
        seed: of the first prompt
    """

    engine: str
    prompts: str
    concurrency: int
    draft_length: int | None
    flags: tuple[str, ...]
    max_new_tokens: int
    temperature: float
    seed: int

    @property
    def job(self) -> Job:
        return Job(Served(self.engine), 0, self.seed, self.concurrency, SCHEME)

    def to_json(self) -> dict[str, Any]:
        """All settings that can change the answer, and the names that readers need."""
        told = {"draft_length": self.draft_length, "flags": list(self.flags) or None}
        return {
            "pair": self.engine,
            "prompts": self.prompts,
            "decoder": self.job.method.name,
            "settings": {
                "concurrency": self.concurrency,
                **{name: value for name, value in told.items() if value is not None},
            },
            "max_new_tokens": self.max_new_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "batch_size": self.concurrency,
            "scheme": SCHEME,
            "timed": True,
        }


@dataclass(frozen=True)
class EngineUnit:
    """Loads that one server gets in turn.

    Attributes:
        ids: the cells' ids
        cells: the cells, which differ in their concurrency alone
        item: the item's number
        prompts: numbers of the prompts in their set
        texts: the text of each
        place: the server; its address is never kept
        generator: name of the generator of load
        device: where a started server runs, such as "cuda:1"
    """

    ids: tuple[str, ...]
    cells: tuple[EngineCell, ...]
    item: int
    prompts: tuple[int, ...]
    texts: tuple[str, ...]
    place: Place = field(repr=False)
    generator: str
    device: str = "auto"


def places(plan: Plan, starts: bool, environ: Mapping[str, str] = os.environ) -> dict[str, Place]:
    """The server of each engine's name in a plan.

    Args:
        plan: the plan
        starts: whether servers may be started, which runs commands of this machine
        environ: names the engines

    Raises:
        InputError: for a name that nobody has given, and for one that may not be started
    """
    return {engine.name: _place(engine, starts, environ) for engine in plan.engines}


def gpus(plan: Plan, environ: Mapping[str, str] = os.environ) -> int:
    """The most GPUs that a server needs which a plan starts; at least 1."""
    known = starters(environ) if any(engine.starts for engine in plan.engines) else {}
    return max([1, *(known[e.name].gpus or 1 for e in plan.engines if e.name in known)])


def _place(of: PlanEngine, starts: bool, environ: Mapping[str, str]) -> Place:
    if not of.starts:
        return _named(of.name, engines(environ), f"name it in {LISTED}, or in the file {FILE}.")
    if not starts:
        raise InputError(
            f"This plan starts the engine {of.name}, which runs a command on this machine; run it "
            "in the terminal, with --start-engines."
        )
    found = _named(
        of.name, starters(environ), f"say how with `start` in the file that {FILE} names.", "start "
    )
    if any(of.draft_lengths) and not found.draft:
        raise InputError(
            f"How the engine {of.name} drafts is not known; add `draft` to its entry in the file "
            f"that {FILE} names, or plan draft_lengths = [0]."
        )
    return found


def _named(name: str, known: Mapping[str, T], otherwise: str, verb: str = "") -> T:
    if name not in known:
        hint = nearest(name, known) if known else otherwise
        raise InputError(f"There is no engine {verb and f'to {verb}'}{quoted(name)}: {hint}")
    return known[name]


def engine_blocks(
    plan: Plan,
    sets: Mapping[str, ScoredSet],
    facts: Mapping[tuple[str, tuple[str, ...]], Mapping[str, Any]],
) -> list[Block]:
    """The engines of a plan, spelled out.

    Args:
        plan: the plan
        sets: its sets of prompts by name
        facts: the identity of each server, by its name and flags: what can change an answer or a
            speed besides the plan

    Returns:
        a block for each server, draft length and set, whose cells are the concurrencies

    Raises:
        InputError: if a set has too few prompts
    """
    return [
        _block(engine, length, sets[name], facts[engine.name, engine.flags])
        for engine in plan.engines
        for name in engine.prompts
        for length in (engine.draft_lengths or (None,))
    ]


def _block(
    engine: PlanEngine, length: int | None, of: ScoredSet, identity: Mapping[str, Any]
) -> Block:
    count = min(len(of.items), engine.limit or len(of.items))
    if count < max(engine.concurrency):
        raise InputError(
            f"Engine {engine.name}: {count} prompts of {of.name} cannot keep "
            f"{max(engine.concurrency)} requests open; use more prompts, or a lower concurrency."
        )
    cells = [
        EngineCell(
            engine.name, of.name, size, length, engine.flags, engine.max_new_tokens,
            engine.temperature, engine.seed,
        )
        for size in engine.concurrency
    ]  # fmt: skip
    known = {"revision": of.revision, "limit": count, **identity}
    each = [digest({**cell.to_json(), **known}) for cell in cells]
    whole = digest(sorted(each))
    items = {NEXT_TIMING * again: tuple(range(count)) for again in range(engine.timings)}
    return Block(
        engine.part, whole, tuple(digest([one, whole]) for one in each),
        tuple(_label(cell, engine) for cell in cells), tuple(cells), items,
        _alone(engine.name, identity.get("device")),
    )  # fmt: skip


def _alone(engine: str, device: str | None) -> str:
    """What takes one load at a time: a server that runs, or the CPUs of started ones.

    Started servers with GPUs run beside others, as they are placed.
    """
    if device is None:
        return f"engine {engine}"
    return f"CPUs of {platform.node()}" if device == "cpu" else ""


def _label(cell: EngineCell, engine: PlanEngine) -> str:
    """The engine, with the settings in which cells of its part differ."""
    words = [cell.engine]
    if len(engine.draft_lengths) > 1:
        words.append(f"draft_length={cell.draft_length}")
    if len(engine.concurrency) > 1:
        words.append(f"concurrency={cell.concurrency}")
    return " ".join(words)
