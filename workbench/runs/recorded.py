"""Runs recorded beforehand, which the page shows before anybody presses Run: `python -m tests.speed.record` writes them."""

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
    """title, says  what a gallery calls it, and what there is to see in it;   weights  the checksum of the pair's weights then"""

    title: str
    says: str
    weights: str
    run: Run

    def to_json(self) -> str:
        data: dict[str, Any] = {"title": self.title, "says": self.says, "weights": self.weights}
        return json.dumps({**data, "run": self.run.to_json()}, ensure_ascii=False, allow_nan=False) + "\n"

    @staticmethod
    def from_json(text: str) -> "Recording":
        data = json.loads(text)
        run = Run.from_json(json.dumps(data["run"]))
        return Recording(data["title"], data["says"], data["weights"], run)


@cache
def recordings() -> tuple[Recording, ...]:
    """Those that ship with this project, in the order of their files' names; the first is what the page opens with."""
    return tuple(Recording.from_json(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.json")))


def recorded(id: str) -> Recording | None:
    """That of the run with this id."""
    return next((each for each in recordings() if each.run.id == id), None)


def id_of(name: str) -> str:
    """The id of a recorded run: it stays when the run is recorded again, so that links to it do."""
    return hashlib.sha256(f"recorded {name}".encode()).hexdigest()[:12]


def checksum(folder: Path) -> str:
    """Of all weights of a pair that lies in a folder."""
    found = hashlib.sha256()
    for file in (file for role in ("draft", "target") for file in sorted((folder / role).glob("*.safetensors"))):
        found.update(file.read_bytes())
    return found.hexdigest()
