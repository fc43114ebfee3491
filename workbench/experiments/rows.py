"""The plain data that the journal keeps: results of cells on items, cells and experiments."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from decoders import InputError, catalog
from workbench.experiments.request import Request
from workbench.runs.database import NEXT_TIMING
from workbench.runs.record import Result, Sample
from workbench.studies.settings import changed


@dataclass(frozen=True, slots=True)
class Row:
    """The result of a cell on an item.

    Attributes:
        cell: the cell's id
        item: the item's number
        result: as runs have it; its samples name prompts by their numbers in the set
        host: the machine
    """

    cell: str
    item: int
    result: Result
    host: str = ""

    @property
    def metrics(self) -> dict[str, Any]:
        return self.result.metrics

    @property
    def outputs(self) -> list[Sample]:
        return self.result.samples

    @property
    def errors(self) -> list[str]:
        return self.result.errors

    def with_outputs(self, outputs: list[Sample]) -> "Row":
        """The same row with other samples."""
        return replace(self, result=replace(self.result, samples=outputs))

    def dumps(self) -> str:
        """The row as a text for the journal."""
        result = _RESULT.dump_python(self.result, mode="json", exclude_defaults=True)
        return json.dumps({"host": self.host, "result": result}, separators=(",", ":"))

    @staticmethod
    def loads(cell: str, item: int, text: str, asked: Mapping[str, Any]) -> "Row":
        """The row from the journal's text, of this version or of one that kept outputs.

        Args:
            cell: the cell's id
            item: the item's number
            text: the row as `dumps` returns it
            asked: the cell's settings, as `Cell.to_json` has them
        """
        data = json.loads(text)
        result = _RESULT.validate_python(data.get("result") or _of_outputs(data, asked, item))
        return Row(cell, item, result, data.get("host", ""))


def failed(
    cell: str,
    item: int,
    asked: Mapping[str, Any],
    prompts: Iterable[int],
    error: str,
    host: str = "",
) -> Row:
    """The row of an item that could not be decoded.

    Args:
        cell: the cell's id
        item: the item's number
        asked: the cell's settings, as `Cell.to_json` has them
        prompts: numbers of the item's prompts
        error: one sentence
        host: the machine
    """
    outputs = [{"prompt": prompt, "prompt_length": 0} for prompt in prompts]
    result = _of_outputs({"error": error, "outputs": outputs}, asked, item)
    return Row(cell, item, _RESULT.validate_python(result), host)


def _of_outputs(data: Mapping[str, Any], asked: Mapping[str, Any], item: int) -> dict[str, Any]:
    """The result of a row that an older version kept as outputs with metrics."""
    named = {"tokens": "ids", "prompt_tokens": "prompt_length"}
    samples = [
        {named.get(name, name): value for name, value in output.items()}
        for output in data.get("outputs", [])
    ]
    metrics = data.get("metrics", {})
    energy = {"joules": metrics.get("joules") or None, "source": data.get("energy") or UNMETERED}
    laps = []
    if metrics.get("seconds") is not None:
        laps = [{"seconds": metrics["seconds"], "rounds": [], "energy": energy,
                 "load": data.get("load") or {}}]  # fmt: skip
    first = item % NEXT_TIMING * asked["batch_size"]
    return {
        "decoder": asked["decoder"], "repeat": 0, "seed": asked["seed"] + first, "metrics": metrics,
        "energy": energy, "samples": samples, "laps": laps, "batch_size": asked["batch_size"],
        "scheme": asked["scheme"], "error": data.get("error"),
    }  # fmt: skip


UNMETERED = "not measured"
_RESULT = TypeAdapter(Result)


@dataclass(frozen=True, slots=True)
class Kept:
    """A cell of an experiment with its rows.

    Attributes:
        part: name of its part of the plan
        cell: its id
        label: its label
        block: id of its block
        items: how many items it has, all timings together
        asked: its settings, as `Cell.to_json` has them
        rows: its rows by the number of their item
    """

    part: str
    cell: str
    label: str
    block: str
    items: int
    asked: dict[str, Any]
    rows: dict[int, Row]

    @property
    def unsaid(self) -> str:
        """Its settings other than the library's defaults that its label does not say, or ""."""
        settings = self.asked["settings"]
        try:
            own = changed(catalog[self.asked["decoder"]](**settings))
        except (InputError, TypeError):  # of another version
            own = settings
        name, said = self.label.split(", ")[0], self.label.replace(", ", " ").split()
        words = [
            f"{key}={'-'.join(map(str, x)) if isinstance(x, list) else x}" for key, x in own.items()
        ]
        others = [word for word in words if word not in said]
        return " ".join([name, *others]) if others else ""


@dataclass(frozen=True, slots=True)
class Entry:
    """An experiment.

    Attributes:
        created: UTC, ISO 8601
        request: the request
        environment: workers, pairs, code and sets that it runs on
    """

    created: str
    request: Request
    environment: dict[str, Any]
