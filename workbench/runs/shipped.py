"""Batches measured beforehand: `python -m tests.speed.batch --measured FILE` writes them, the Batch tab shows those that are shipped."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from workbench.studies.batch_records import BatchRun
from workbench.studies.prompts import ASSETS

SHIPPED = ASSETS / "batch" / "measured.json"


@dataclass(frozen=True)
class Measured:
    """command   what was run;   load  the machine's load averages before it, over 1, 5 and 15 minutes
    runs      the experiments, each with its date and its environment
    """

    command: str
    load: tuple[float, ...]
    runs: tuple[BatchRun, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False) + "\n"

    @staticmethod
    def from_json(text: str) -> "Measured":
        data: Mapping[str, Any] = json.loads(text)
        return Measured(data["command"], tuple(data["load"]), tuple(map(BatchRun.from_json, data["runs"])))


def shipped() -> Measured | None:
    """What this project comes with, if anything."""
    return Measured.from_json(SHIPPED.read_text(encoding="utf-8")) if SHIPPED.exists() else None
