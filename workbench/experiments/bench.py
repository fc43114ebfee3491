"""A worker's bench: it keeps a pair loaded and decodes units of work with `measure`.

It also tells all that can change an answer besides the plan: the code and the models.
"""

import hashlib
import os
import platform
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

import decoders
from decoders import Head, InputError, ModelPair, check
from decoders.inputs import decoded
from decoders.process import light_heap
from workbench.experiments.cells import Cell
from workbench.experiments.journal import NEXT_TIMING, ItemRow, failed
from workbench.measuring.device import chosen
from workbench.measuring.disturbance import Watch, watch
from workbench.measuring.job import measure
from workbench.measuring.meter import Meter, open_meter
from workbench.measuring.work import Measured, Work, encode_prompt
from workbench.models.environment import environment
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice
from workbench.runs.record import Sample
from workbench.studies.prompts import Words
from workbench.studies.schemes import in_turn

IDLE_SECONDS = 2.0
# The first prompts of a set whose whole trace is kept, so that they can be opened as a run.
TRACED = 3


@cache
def code() -> str:
    """A hash of the sources of `decoders`."""
    root = Path(decoders.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        if "integrations" not in file.parts:
            digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def identity(pair: ModelPair, quantization: str | None = None) -> dict[str, Any]:
    """Models, dtype and kind of device, which a cell's id contains.

    Args:
        quantization: the form in which its weights were loaded, which no revision tells
    """
    where = environment(pair)
    facts = {"dtype": where["dtype"], "device": pair.target.device.type}
    if quantization is not None:  # left out of others, so that their cells keep their ids
        facts["quantization"] = quantization
    for role in ("target", "draft", "head"):
        if known := where.get(role):  # the hub's revision; of other models a hash of their weights
            facts[role] = (
                f"{known['name']}@{known['revision']}"
                if known["revision"]
                else f"{known['type']} {weights(getattr(pair, role))}"
            )
    return facts


def weights(model: torch.nn.Module | Head) -> str:
    """A hash of a model's weights."""
    digest, left = hashlib.sha256(), [*model.state_dict().items()]
    while left:
        name, weight = left.pop(0)
        if hasattr(weight, "__tensor_flatten__"):  # quantised: its bytes are those of its parts
            parts, _ = weight.__tensor_flatten__()
            left += [(f"{name}.{part}", getattr(weight, part)) for part in parts]
            continue
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Unit:
    """Cells that take turns on one item.

    Attributes:
        choice: the pair
        ids: the cells' ids
        cells: the cells
        item: the item's number
        prompts: numbers of the item's prompts in their set; the last batch is filled up with
            earlier prompts
        texts: the text of each of these prompts
    """

    choice: PairChoice
    ids: tuple[str, ...]
    cells: tuple[Cell, ...]
    item: int
    prompts: tuple[int, ...]
    texts: tuple[Words, ...]


class Bench:
    """Runs units in the thread that calls it.

    Args:
        ready: returns the loaded pair, with its threads chosen; by default the bench loads it
    """

    def __init__(self, ready: Callable[[PairChoice], ModelPair] | None = None):
        self._ready = ready or _Own()
        self._tools: tuple[ModelPair, Meter, Watch] | None = None
        self._warm: set[tuple[Any, ...]] = set()

    def facts(self, choice: PairChoice, idle: bool = False) -> dict[str, Any]:
        """The pair's "identity", which cells' ids contain, and its "environment", for reports.

        Args:
            idle: also measure idle power
        """
        pair = self._ready(choice)
        meter, _ = self._with(pair)
        where = environment(pair) | {"host": platform.node()}
        if idle:
            with meter.window() as window:
                time.sleep(IDLE_SECONDS)
            joules = window.energy.joules
            where["idle_power"] = (
                window.energy.source
                if joules is None
                else f"{joules / IDLE_SECONDS:.1f} W ({window.energy.source})"
            )
        return {"identity": identity(pair, choice.quantization), "environment": where}

    def run(self, unit: Unit) -> list[ItemRow]:
        """A row for each cell; a failure becomes a row with its error."""
        pair = self._ready(unit.choice)
        tools = self._with(pair)
        turn, cells = sum(divmod(unit.item, NEXT_TIMING)), range(len(unit.cells))
        with light_heap():
            rows = [self._row(pair, tools, unit, i) for i in in_turn(cells, turn)]
        return list(in_turn(rows, turn))

    def _row(self, pair: ModelPair, tools: tuple[Meter, Watch], unit: Unit, i: int) -> ItemRow:
        cell, host = unit.cells[i], platform.node()
        try:
            chat = cell.settings.chat_template, cell.settings.system
            encoded = [encode_prompt(pair, text, *chat) for text in unit.texts]
            ids = [each.ids for each in encoded]
            job = cell.job(unit.prompts[0])
            check(
                pair,
                ids,
                job.method,
                **{**cell.settings.decoding, "seed": job.seed},
                **job.batching,
            )
        except InputError as error:
            prompts = [prompt for _, prompt in _first(unit.prompts)]
            return failed(unit.ids[i], unit.item, cell.to_json(), prompts, str(error), host)
        if len(ids) == 1 and unit.prompts[0] < TRACED:
            job = replace(job, keep="trace")
        parts = [each.parts for each in encoded]
        work = Work(pair, ids, cell.settings, *tools, lambda: False, parts=parts)
        key = (unit.choice, cell.method, cell.batch_size, cell.scheme)
        measured = whole(measure(work, job, cold=cell.timed and key not in self._warm, shows=False))
        self._warm.add(key)
        samples = [_sample(pair, measured, ids, *each) for each in _first(unit.prompts)]
        return ItemRow(unit.ids[i], unit.item, replace(measured.result, samples=samples), host)

    def _with(self, pair: ModelPair) -> tuple[Meter, Watch]:
        if self._tools is None or self._tools[0] is not pair:
            device = pair.target.device
            self._tools, self._warm = (pair, open_meter(device), watch(device)), set()
        return self._tools[1:]


def _first(prompts: tuple[int, ...]) -> list[tuple[int, int]]:
    """(place, prompt) of the item's own prompts, without those that fill up the last batch."""
    return [(i, p) for i, p in enumerate(prompts) if prompts.index(p) == i and p >= prompts[0]]


def _sample(
    pair: ModelPair, measured: Measured, ids: list[list[int]], place: int, prompt: int
) -> Sample:
    """The sample at a place of the batch, with its text, under the prompt's own number."""
    sample = next(
        (s for s in measured.result.samples if s.prompt == place), Sample(place, len(ids[place]))
    )
    tokens = list(measured.outputs.get(place, []))
    shown = tokens[:-1] if tokens and tokens[-1] in pair.end_tokens else tokens
    text = decoded(pair.tokenizer, shown) if pair.tokenizer and shown else ""
    return replace(sample, prompt=prompt, text=text, ids=tokens)


def whole(measuring: Generator[Any, None, Measured]) -> Measured:
    """The result of a measurement, without its updates."""
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
