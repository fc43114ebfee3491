"""Runs measured beforehand, which the page shows before anybody presses Run.

`python -m tools.record` writes them.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from decoders import smollm2
from decoders.process import assets as assets_of_decoders
from workbench import assets
from workbench.runs.record import Run

FOLDER = assets() / "recorded"
ENERGY = assets() / "batch" / "energy.json"


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
        return _line({**vars(self), "run": self.run.to_json()})

    @staticmethod
    def from_json(text: str) -> "Recording":
        data = json.loads(text)
        return Recording(**{**data, "run": Run.from_json(json.dumps(data["run"]))})


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


def checksum(run: Run) -> str:
    """The checksum of the weights that a recorded run was made with.

    Those of the embedded pair, of whatever drafted; or SmolLM2's head with the file of the package.
    """
    if run.environment["target"]["name"].startswith(smollm2.PACKAGE):
        digest, folders = hashlib.sha256(smollm2.SHA256.encode()), [smollm2.HEAD]
    else:
        roles = [role for role in ("draft", "head") if run.environment.get(role)]
        digest, pair = hashlib.sha256(), assets_of_decoders() / "stories"
        folders = [pair / role for role in (*roles, "target")]
    for folder in folders:
        for file in sorted(folder.glob("*.safetensors")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class EnergyRecording:
    """Joules a token that a card took, by NVML's counter; notes/cuda.md says how.

    Attributes:
        card: its name
        date: the day of the measurement
        pair: the models
        joules_per_token: by decoder
    """

    card: str
    date: str
    pair: str
    joules_per_token: Mapping[str, float]


@cache
def energy_on_gpu(file: Path = ENERGY) -> EnergyRecording:
    return EnergyRecording(**json.loads(file.read_text(encoding="utf-8")))


def _line(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n"
