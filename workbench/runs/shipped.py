"""Batches measured beforehand, which the Batch tab shows.

`python -m tools.batch` writes them.
"""

import json
from dataclasses import dataclass
from typing import Any

from workbench.assets import assets
from workbench.runs.record import Run

SHIPPED = assets() / "batch" / "measured.json"


@dataclass(frozen=True)
class Measured:
    """Runs of the Batch tab with the conditions under which they were measured.

    Attributes:
        command: the command that measured them
        load: the machine's load averages before it, over 1, 5 and 15 minutes
        runs: the experiments, each with its date and its environment
    """

    command: str
    load: tuple[float, ...]
    runs: tuple[Run, ...]

    def to_json(self) -> str:
        data: dict[str, Any] = {
            "command": self.command,
            "load": self.load,
            "runs": [r.to_json() for r in self.runs],
        }
        return json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n"

    @staticmethod
    def from_json(text: str) -> "Measured":
        data = json.loads(text)
        runs = tuple(Run.from_json(json.dumps(run)) for run in data["runs"])
        return Measured(data["command"], tuple(data["load"]), runs)


def shipped() -> Measured | None:
    """The measurements of this project; None if there are none."""
    return Measured.from_json(SHIPPED.read_text(encoding="utf-8")) if SHIPPED.exists() else None
