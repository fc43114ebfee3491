"""What a user asks for: a plan with what is changed of it. Plain data, so that it can be asked again."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.experiments import library, plan_file
from workbench.experiments.cells import restricted
from workbench.experiments.plan import Plan
from workbench.experiments.sets import ScoredSet
from workbench.models.presets import PairChoice


@dataclass(frozen=True)
class Request:
    """plan, file   the plan's text, and its name for messages;   choice  a pair instead of the plan's;   limit  prompts at most
    data         the folder of prompt sets;   paths  whether the plan may name files there
    """

    plan: str
    file: str
    choice: PairChoice | None = None
    limit: int | None = None
    data: str | None = None
    paths: bool = True

    def to_json(self) -> dict[str, Any]:
        choice = self.choice and [self.choice.target, self.choice.draft, self.choice.device, self.choice.dtype]
        return {**vars(self), "choice": choice}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Request":
        choice = data["choice"] and PairChoice(*data["choice"])
        return Request(**{**data, "choice": choice})

    def read(self) -> tuple[Plan, dict[str, ScoredSet]]:
        """The plan and its sets. Raises InputError before any model is loaded."""
        plan = restricted(plan_file.parse(self.plan, self.file), self.choice, self.limit)
        data = Path(self.data) if self.data else None
        names = dict.fromkeys(name for part in plan.parts for name in part.prompts)
        return plan, {name: library.find(name, data, self.paths) for name in names}
