"""A user's request: a plan with changes, as plain data, so that it can be resumed, and its sets."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from decoders import InputError
from decoders.errors import quoted
from decoders.settings import nearest
from workbench.assets import assets
from workbench.experiments import plan as plans
from workbench.experiments.cells import restricted
from workbench.experiments.plan import Plan
from workbench.experiments.sets import FORMATS, Format, Item, ScoredSet
from workbench.models.presets import PairChoice
from workbench.studies import prompts as plain_prompts

TEMPLATES = Path(__file__).with_name("templates")
# Our own prompts of six kinds; Spec-Bench's take their place where its file is.
KINDS, THEIRS = "kinds", "spec-bench"
OWN = (".jsonl", ".txt")


def find(name: str, data: Path | None, allow_paths: bool = True) -> ScoredSet:
    """A set by its name.

    Args:
        name: a built-in set, a public format, or the path of a .txt or .jsonl file
        data: of a public format the file, its folder, or a folder that has a folder of its name
        allow_paths: whether the name may be a path

    Raises:
        InputError: if there is no such set, or if it is malformed; the message says what to do
    """
    if name in plain_prompts.BUILT_IN:
        found = plain_prompts.built_in(name).prompts
        return ScoredSet(name, tuple(Item({"prompt": p.text}, p.place) for p in found))
    if name == KINDS:
        return _kinds(data)
    if name in FORMATS:
        return _local(name, FORMATS[name], data)
    if allow_paths and Path(name).suffix.lower() in OWN:
        path = Path(name) if data is None or data.is_file() else data / name
        return replace(_local("own", FORMATS["own"], path), name=path.name)
    names = [*plain_prompts.BUILT_IN, KINDS, *FORMATS]
    own = " Or name a .txt or .jsonl file." if allow_paths else ""
    raise InputError(f"There is no set of prompts {quoted(name)}: {nearest(name, names)}{own}")


def _kinds(data: Path | None) -> ScoredSet:
    """Prompts of six kinds: Spec-Bench's if its file is in `data`, else our own."""
    theirs = FORMATS[THEIRS]
    if data is not None and any((data / each / theirs.files[0]).is_file() for each in (THEIRS, "")):
        return replace(_local(THEIRS, theirs, data), name=KINDS)
    return ScoredSet(KINDS, FORMATS["own"].read(assets() / "batch" / "kinds.jsonl"))


def _local(name: str, format: Format, data: Path | None) -> ScoredSet:
    if data is None:
        raise InputError(
            f"The set {quoted(name)} does not come with the project: download {format.files[0]} "
            "from its authors and name its folder with --data FOLDER."
        )
    items = format.read(_file(name, format, data))
    if not items:
        raise InputError(f"{data.name} has no prompts; give at least one.")
    template = (TEMPLATES / f"{format.template}.txt").read_text(encoding="utf-8")
    return ScoredSet(name, items, format.scorer, template.removesuffix("\n"), format.stop)


def _file(name: str, format: Format, data: Path) -> Path:
    if data.is_file() or data.suffix.lower() in OWN:
        return data
    for folder in (data / name, data):
        for file in format.files:
            if (folder / file).is_file():
                return folder / file
    raise InputError(
        f"There is no {' or '.join(format.files)} for the set {quoted(name)} in {data} or in its "
        f"folder {name}."
    )


@dataclass(frozen=True)
class Request:
    """A request.

    Attributes:
        plan: the plan's text
        file: its name for messages
        choice: a pair instead of the plan's, None for the plan's own
        limit: the most prompts of each set
        data: the folder of downloaded sets of prompts
        paths: whether the plan may name files there
    """

    plan: str
    file: str
    choice: PairChoice | None = None
    limit: int | None = None
    data: str | None = None
    paths: bool = True

    def to_json(self) -> dict[str, Any]:
        """The request as plain data."""
        pair = self.choice
        choice = pair and [pair.target, pair.draft, pair.device, pair.dtype, pair.quantization]
        return {**vars(self), "choice": choice}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Request":
        """The request from plain data, of this version or of one that kept no quantization."""
        return Request(**{**data, "choice": data["choice"] and PairChoice(*data["choice"])})

    def read(self) -> tuple[Plan, dict[str, ScoredSet]]:
        """The plan and its sets by name. No model is loaded.

        Raises:
            InputError: if the plan or a set cannot be used
        """
        plan = restricted(plans.parse(self.plan, self.file), self.choice, self.limit)
        data = Path(self.data) if self.data else None
        names = dict.fromkeys(chain.from_iterable(part.prompts for part in plan.parts))
        return plan, {name: find(name, data, self.paths) for name in names}
