"""The kinds of study: the only list of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from workbench.kinds.advice import Advice
from workbench.kinds.batch import Batch
from workbench.kinds.comparison import Comparison
from workbench.kinds.draw import Draw
from workbench.studies.study import Study


@dataclass(frozen=True)
class StudyKind:
    """One kind of study, and its parts.

    A part is an object, or the name of a module, which is imported when the part is first asked
    for.

    Attributes:
        name: its name in runs, links and files
        study: its class of studies; None for a kind whose runs are of another kind, or that keeps
            no runs
        view: the look of its runs: a module with `VIEW`, a `workbench.show.view.View`
        form: its part of the page: a module with `TAB`, a class that takes a
            `workbench.page.host.Host` and the state with the chosen pair, or with
            `endpoints(host)`, which offers its endpoints, or with both; the `cards` of a tab are
            those of kinds without one
        command: its command in the terminal: a module with `register(commands)`; it may have
            `text(result)` and `summary(run)`, which show a finished text and a run's figures
    """

    name: str
    study: type[Study] | None = None
    view: Any = None
    form: Any = None
    command: Any = None

    def part(self, name: str) -> Any:
        """The part of this name; None if the kind has none."""
        part = getattr(self, name)
        return import_module(part) if isinstance(part, str) else part


def in_folder(name: str, study: type[Study] | None, *parts: str) -> StudyKind:
    """A kind whose parts are modules of `workbench.kinds.<name>`.

    Args:
        name: the name of the kind, and of its folder
        parts: the modules in the folder, such as "view"
    """
    return StudyKind(name, study, **{part: f"workbench.kinds.{name}.{part}" for part in parts})


# In the order of tabs and commands.
KINDS: dict[str, StudyKind] = {
    kind.name: kind
    for kind in (
        in_folder("comparison", Comparison, "view", "form", "command"),
        in_folder("branch", None, "form", "command"),
        in_folder("draw", Draw, "view", "form", "command"),
        in_folder("batch", Batch, "view", "form", "command"),
        in_folder("experiment", None, "form", "command"),
        in_folder("advice", Advice, "view", "command"),
        in_folder("divergence", None, "form", "command"),
        in_folder("judge", None, "form", "command"),
    )
}
UNNAMED = Comparison.kind  # the kind of a link that names none


def studies() -> Mapping[str, type[Study]]:
    """The classes of studies, by the name of their kind in runs, links and files."""
    return {name: kind.study for name, kind in KINDS.items() if kind.study is not None}


def study_of(kind: str) -> type[Study]:
    """The class of studies of this kind; for an unknown kind, their base."""
    return studies().get(kind, Study)


def part_of(kind: str, name: str) -> Any:
    """A part of this kind; None if the kind is not known here or has none."""
    return KINDS[kind].part(name) if kind in KINDS else None
