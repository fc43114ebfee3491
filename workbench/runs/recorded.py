"""Recorded runs, which the page shows before anybody presses Run.

`python -m tools.record` writes them.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from workbench.assets import assets
from workbench.runs.record import Run

FOLDER = assets() / "recorded"


@dataclass(frozen=True)
class Recording:
    """A recorded run.

    Attributes:
        title: its name in a gallery
        says: a sentence on what it shows
        weights: checksum of the pair's weights at that time
        run: the run
    """

    title: str
    says: str
    weights: str
    run: Run

    def to_json(self) -> str:
        data: dict[str, Any] = {"title": self.title, "says": self.says, "weights": self.weights}
        return (
            json.dumps({**data, "run": self.run.to_json()}, ensure_ascii=False, allow_nan=False)
            + "\n"
        )

    @staticmethod
    def from_json(text: str) -> "Recording":
        data = json.loads(text)
        run = Run.from_json(json.dumps(data["run"]))
        return Recording(data["title"], data["says"], data["weights"], run)


@cache
def recordings() -> tuple[Recording, ...]:
    """The recordings of this project, by file name; the page opens with the first."""
    return tuple(
        Recording.from_json(file.read_text(encoding="utf-8"))
        for file in sorted(FOLDER.glob("*.json"))
    )


def recorded(id: str) -> Recording | None:
    """The recording of the run with this id; None if there is none."""
    return next((each for each in recordings() if each.run.id == id), None)


def id_of(name: str) -> str:
    """The id of a recorded run; it stays when the run is recorded again, so links keep working."""
    return hashlib.sha256(f"recorded {name}".encode()).hexdigest()[:12]


def checksum(folder: Path) -> str:
    """The checksum of all weights of a pair in a folder."""
    digest = hashlib.sha256()
    for file in (
        file
        for role in ("draft", "target")
        for file in sorted((folder / role).glob("*.safetensors"))
    ):
        digest.update(file.read_bytes())
    return digest.hexdigest()
