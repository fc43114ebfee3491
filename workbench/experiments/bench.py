"""What a worker does: it keeps a pair loaded and decodes units of work with the workbench's own `measure`."""

import os
import platform
import time
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass
from typing import Any

import torch

import decoders
from decoders import InputError, ModelPair
from decoders.inputs import decoded
from workbench.experiments.cells import Cell
from workbench.experiments.identity import identity
from workbench.experiments.rows import Output, Row
from workbench.measuring.admit import encode_prompt
from workbench.measuring.disturbance import Watch, watch
from workbench.measuring.job import measure
from workbench.measuring.meter import Meter, open_meter
from workbench.measuring.session import light_heap
from workbench.measuring.threads import chosen
from workbench.measuring.work import Measured, Work
from workbench.models.environment import environment
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice

IDLE_SECONDS = 2.0


@dataclass(frozen=True)
class Unit:
    """Cells that take turns on one item. texts  the prompts, of which number `prompts[i]` is `texts[i]`; a batch's last may come twice."""

    choice: PairChoice
    ids: tuple[str, ...]
    cells: tuple[Cell, ...]
    item: int
    prompts: tuple[int, ...]
    texts: tuple[str, ...]


class Bench:
    """Runs units in the thread that calls it. `ready` gives the loaded pair, with its threads chosen."""

    def __init__(self, ready: Callable[[PairChoice], ModelPair] | None = None):
        self._ready = ready or _Own()
        self._tools: tuple[ModelPair, Meter, Watch] | None = None
        self._warm: set[tuple[Any, ...]] = set()

    def facts(self, choice: PairChoice, idle: bool = False) -> dict[str, Any]:
        """What names the models and the device ("identity"), and what a report says about them. idle  measure idle power too."""
        pair = self._ready(choice)
        meter, _ = self._with(pair)
        where = environment(pair) | {"host": platform.node()}
        if idle:
            with meter.window() as window:
                time.sleep(IDLE_SECONDS)
            joules = window.energy.joules
            where["idle_power"] = (
                window.energy.source if joules is None else f"{joules / IDLE_SECONDS:.1f} W ({window.energy.source})"
            )
        return {"identity": identity(pair), "environment": where}

    def run(self, unit: Unit) -> list[Row]:
        """A row for each cell; what fails is a row with its error."""
        pair = self._ready(unit.choice)
        tools = self._with(pair)
        order = list(range(len(unit.cells)))
        if unit.item % 2:
            order.reverse()  # a machine that gets slower or faster favours nobody
        found: dict[int, Row] = {}
        with light_heap():
            for i in order:
                found[i] = self._row(pair, tools, unit, i)
        return [found[i] for i in sorted(found)]

    def _row(self, pair: ModelPair, tools: tuple[Meter, Watch], unit: Unit, i: int) -> Row:
        cell, host = unit.cells[i], platform.node()
        try:
            ids = [encode_prompt(pair, text, cell.settings.chat_template) for text in unit.texts]
            job = cell.job(unit.prompts[0])
            decoders.check(pair, ids, job.method, **{**cell.settings.decoding, "seed": job.seed}, **job.batching)
        except InputError as error:
            outputs = [Output(p, 0) for _, p in _first(unit.prompts)]
            return Row(unit.ids[i], unit.item, outputs, host=host, error=str(error))
        work = Work(pair, ids, cell.settings, *tools, lambda: False)
        key = (unit.choice, cell.method, cell.batch_size, cell.scheme)
        measured = whole(measure(work, job, cold=cell.timed and key not in self._warm, drawn=False))
        self._warm.add(key)
        result = measured.result
        load = asdict(result.laps[0].load) if result.laps else {}
        outputs = [_output(pair, measured, place, prompt, ids) for place, prompt in _first(unit.prompts)]
        return Row(unit.ids[i], unit.item, outputs, result.metrics, result.energy.source, load, host, result.error)

    def _with(self, pair: ModelPair) -> tuple[Meter, Watch]:
        if self._tools is None or self._tools[0] is not pair:
            device = pair.target.device
            self._tools, self._warm = (pair, open_meter(device), watch(device)), set()
        return self._tools[1:]


def _first(prompts: tuple[int, ...]) -> list[tuple[int, int]]:
    """(place, prompt) of the prompts that are the item's own: what a batch is filled up with belongs to its first item."""
    return [(i, p) for i, p in enumerate(prompts) if prompts.index(p) == i and p >= prompts[0]]


def _output(pair: ModelPair, measured: Measured, place: int, prompt: int, ids: list[list[int]]) -> Output:
    sample = next((s for s in measured.result.samples if s.prompt == place), None)
    tokens = list(measured.outputs.get(place, []))
    gained, drafted = measured.rounds[place] if place < len(measured.rounds) else ([], [])
    shown = tokens[:-1] if tokens and tokens[-1] in pair.end_tokens else tokens
    text = decoded(pair.tokenizer, shown) if pair.tokenizer and shown else ""
    return Output(
        prompt,
        len(ids[place]),
        tokens,
        text,
        list(gained),
        list(drafted),
        sample.finished if sample else None,
        sample.error if sample else None,
    )


def whole(measuring: Generator[Any, None, Measured]) -> Measured:
    """What a measurement returns, its updates left out."""
    while True:
        try:
            next(measuring)
        except StopIteration as done:
            return done.value


class _Own:
    """Loads pairs for a worker that has a process, and maybe a GPU, to itself."""

    def __init__(self) -> None:
        self._keeper = PairKeeper()
        self._seen: ModelPair | None = None

    def __call__(self, choice: PairChoice) -> ModelPair:
        pair = self._keeper.get(choice)
        if pair is not self._seen:
            torch.set_num_threads(chosen(pair, os.environ).count)
            self._seen = pair
        return pair
