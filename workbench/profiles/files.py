"""Files that hold profiles, in whatever format: found out by their content."""

import json
from pathlib import Path
from typing import Any

from decoders.errors import InputError, refuse
from workbench.kinds import imports
from workbench.profiles import costs, inferencex, profile, vllm
from workbench.profiles.costs import Steps
from workbench.profiles.gather import of_run
from workbench.profiles.profile import LARGEST_FILE, Profile
from workbench.runs.record import LARGEST_FILE as LARGEST_RUN
from workbench.runs.version1 import FORMAT as RUN


def text_of(path: Path, most: int) -> str:
    """The text of a file.

    Raises:
        InputError: if it cannot be read, or is too large
    """
    try:
        refuse(
            (
                path.stat().st_size > most,
                f"{path.name} is larger than {most:,} bytes; give a smaller file.",
            )
        )
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path.name} is not text in UTF-8; give a profile.") from None


def read(path: Path) -> Profile:
    """The profile in a file: ours, a run's, a config of vLLM, or a curve of InferenceX.

    Raises:
        InputError: if it is none of these, with the reason
    """
    text = text_of(path, LARGEST_RUN)
    data = _json(text)
    if isinstance(data, dict) and data.get("format") == RUN:
        return of_run(imports.read(text))
    refuse((len(text) > LARGEST_FILE, f"{path.name} is too large for a profile; give another."))
    if vllm.is_config(data):
        return vllm.read(data, path.stem)
    if isinstance(data, dict):
        return profile.loads(data)
    return inferencex.read(text, path.stem)


def read_costs(path: Path) -> Steps:
    """The costs in a file; raises InputError if it has none."""
    return costs.loads(_json(text_of(path, LARGEST_FILE)))


def _json(text: str) -> Any:
    """The JSON of a text; None for other formats."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
