"""Settings that are kept with a pair: for each decoder those that suit this pair best.

A folder with `target/` may hold them as `settings.json`, which `python -m tools.tune` writes, and
so has SmolLM2's in this package:

    {"speculative": {"draft_length": 3}, "dsbd": [{"draft_beams": 4}, {"draft_beams": 2}]}

They are what forms, recorded runs and plans with `settings = "tuned"` begin with. The library's own
defaults stay those of the papers, and a link that does not name a setting means these.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from decoders import InputError, Method, catalog, smollm2
from decoders.errors import quoted
from decoders.process import assets
from workbench.models.presets import EMBEDDED, SMOLLM2, PairChoice

FILE = "settings.json"
OURS = EMBEDDED.choice()
Own = dict[str, Any]  # settings of one decoder by name


def file(choice: PairChoice = OURS) -> Path:
    """The file in which a pair in one folder keeps its settings, or one of this package."""
    if choice.preset is SMOLLM2:
        return assets() / smollm2.NAME / FILE
    return Path(choice.target or assets() / "stories") / FILE


def kept(choice: PairChoice = OURS) -> dict[str, list[Own]]:
    """The settings that a pair keeps, by decoder, without those that have the library's default.

    Args:
        choice: the pair; only those of this package and those in one folder can keep settings

    Returns:
        for each decoder one set of settings, or several for several uses; {} if the file is
        missing or damaged

    Raises:
        InputError: if it names a decoder or a setting that is not there, or a value out of range
    """
    path = file(choice)
    try:
        whole = choice.draft is None and (
            choice.preset is SMOLLM2 or (path.parent / "target").is_dir()
        )
        data = json.loads(path.read_text(encoding="utf-8")) if whole else {}
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    found = {name: own if isinstance(own, list) else [own] for name, own in data.items()}
    try:
        for name, sets in found.items():
            for own in sets or [sets]:
                _method(name, own)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return found


def tuned(choice: PairChoice = OURS) -> dict[str, Own]:
    """The first settings of each decoder in `kept`, in the form of `Settings.to_json`.

    Args:
        choice: the pair
    """
    return {name: own for name, (own, *_) in kept(choice).items()}


def _method(name: str, own: Any) -> Method:
    if not isinstance(own, Mapping):
        raise InputError(
            f"The settings of {name} must be one JSON object or several in a list, not "
            f"{quoted(own)}."
        )
    return catalog[name](**own)
