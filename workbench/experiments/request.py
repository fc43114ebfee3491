"""A user's request: a plan with changes, as plain data, so that it can be resumed."""

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
        choice = pair and [pair.target, pair.draft, pair.device, pair.dtype]
        return {**vars(self), "choice": choice}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Request":
        """The request from plain data."""
        choice = data["choice"] and PairChoice(*data["choice"])
        return Request(**{**data, "choice": choice})

    def read(self) -> tuple[Plan, dict[str, ScoredSet]]:
        """The plan and its sets by name. No model is loaded.

        Raises:
            InputError: if the plan or a set cannot be used
        """
        plan = restricted(plan_file.parse(self.plan, self.file), self.choice, self.limit)
        data = Path(self.data) if self.data else None
        names = dict.fromkeys(name for part in plan.parts for name in part.prompts)
        return plan, {name: library.find(name, data, self.paths) for name in names}
