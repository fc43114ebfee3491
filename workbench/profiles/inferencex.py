"""InferenceX's golden acceptance curves: YAML, a model's acceptance lengths by draft length.

A file maps a model to its modes ("thinking_on", "thinking_off"), and a mode to acceptance lengths
by `num_speculative_tokens`. Its reader also takes a model without modes, and a list of maps with
one entry each; so do we. All lengths count the target's token and have two decimals. The category
and the sampling stand in comments.

Source:
    SemiAnalysisAI/InferenceX at 843c6254 (2026-08-21): `golden_al_distribution/README.md` and the
    files beside it; `_lookup_al` in `runners/inject_synthetic_acceptance.py`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from decoders.errors import InputError, is_whole, quoted, refuse
from workbench.profiles.profile import Curve, Point, Profile

CATEGORY = re.compile(r"^#.*\bdataset: *([\w-]+)", re.MULTILINE)
UNNAMED = "all"
LARGEST = 65_536  # characters; YAML is read slowly


def read(text: str, name: str) -> Profile:
    """The profile in a file.

    Args:
        text: its content
        name: its name without the ending, which names the method

    Raises:
        InputError: if it is not such a file
    """
    refuse((len(text) > LARGEST, f"{name} is too large for an acceptance curve; give another."))
    try:
        data = yaml.safe_load(text)
    # PyYAML fails in the latter ways for a value that is not of the type that its tag says.
    except (yaml.YAMLError, ValueError, RecursionError, LookupError, AttributeError):
        raise InputError("The file is neither JSON nor YAML; give a profile.") from None
    if not isinstance(data, Mapping) or not data:
        raise _strange("the whole", data)
    found = CATEGORY.search(text)
    category = found[1] if found else UNNAMED
    many = len(data) > 1
    curves = tuple(
        Curve(f"{name}, {model}" if many else name, f"{category}{mode}", points)
        for model, block in data.items()
        for mode, points in _modes(str(model), block)
    )
    target = "" if many else str(next(iter(data)))
    return Profile(f"InferenceX, {name}", target, "", None, curves)


def _modes(model: str, block: Any) -> Iterator[tuple[str, tuple[Point, ...]]]:
    """The modes of a model, "" for none, each with its points."""
    lengths = _joined(block)
    if lengths and all(isinstance(each, (Mapping, list)) for each in lengths.values()):
        for mode, each in lengths.items():
            yield f", {mode}", tuple(_points(f"{model}.{mode}", _joined(each)))
    else:
        yield "", tuple(_points(model, lengths))


def _joined(block: Any) -> Mapping[Any, Any]:
    """A map, or a list of maps as one; {} for anything else."""
    if isinstance(block, list) and all(isinstance(each, Mapping) for each in block):
        return {key: value for each in block for key, value in each.items()}
    return block if isinstance(block, Mapping) else {}


def _points(where: str, lengths: Mapping[Any, Any]) -> Iterator[Point]:
    if not lengths:
        raise _strange(where, lengths)
    for key, value in lengths.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (is_whole(key) and 1 <= key <= 1024 and number and 1 <= value <= key + 1):
            raise _strange(f"{where}.{key}", value)
    for key in sorted(lengths):
        yield Point(key, float(lengths[key]))


def _strange(where: str, value: Any) -> InputError:
    return InputError(
        f"This is no acceptance curve of InferenceX: {where[:80]} is {quoted(value)}; it maps a "
        "model to acceptance lengths by draft length, each from 1 to one more than the draft."
    )


def write(profile: Profile, curve: Curve) -> str:
    """A curve as such a file, without modes, which it does not have here."""
    model = profile.target or curve.method
    comments = [
        f"# Source: {profile.source}",
        "# Acceptance Length (AL) values measured with decoding-workbench.",
        f"# dataset: {curve.category} | temperature: {_known(profile.temperature)}",
        f"# method: {curve.method} | draft: {_known(profile.draft or None)}",
        "# key = num_speculative_tokens; value = AL, which counts the target's token",
    ]
    lengths = {model: {p.draft_length: round(p.length, 2) for p in curve.points}}
    # A line break within a name would end the comment.
    lines = [" ".join(line.split()) for line in comments]
    return "\n".join(lines) + "\n" + yaml.safe_dump(lengths, sort_keys=False, allow_unicode=True)


def _known(value: object) -> str:
    return "unknown" if value is None else str(value)
