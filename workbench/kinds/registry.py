"""The kinds of study: the only list of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from workbench.studies.study import Study


@dataclass(frozen=True)
class StudyKind:
    """One kind of study. Its module and its form are imported when they are first asked for.

    Attributes:
        name: its name in runs, links and files
        module: its module, or the name of it. It may have `VIEW`, the look of its runs (a
            `workbench.show.view.View`), `register(commands)`, which adds its command to the
            terminal, and `text(result)` and `summary(run)`, which show a finished text and a run's
            figures there
        study: the name of its class of studies in the module; None for a kind whose runs are of
            another kind, or that keeps no runs
        form: its part of the page, a module with `TAB`, a class that takes a
            `workbench.page.host.Host` and the state with the chosen pair, or with
            `endpoints(host)`, which offers its endpoints, or with both; the `cards` of a tab are
            those of kinds without one
    """

    name: str
    module: Any
    study: str | None = None
    form: Any = None

    def part(self, name: str) -> Any:
        """What its module has by this name, or None."""
        return getattr(_module(self.module), name, None)

    @property
    def on_page(self) -> Any:
        """Its form; None if the page does not offer it by itself."""
        return _module(self.form)


def _module(there: Any) -> Any:
    return import_module(there) if isinstance(there, str) else there


def in_folder(name: str, study: str | None = None, form: bool = True) -> StudyKind:
    """A kind whose module is `workbench.kinds.<name>`, and its form `form.py` there."""
    module = f"workbench.kinds.{name}"
    return StudyKind(name, module, study, f"{module}.form" if form else None)


# In the order of tabs and commands.
KINDS: dict[str, StudyKind] = {
    kind.name: kind
    for kind in (
        in_folder("comparison", "Comparison"),
        in_folder("branch"),
        in_folder("draw", "Draw"),
        in_folder("batch", "Batch"),
        in_folder("experiment"),
        in_folder("advice", "Advice", form=False),
        in_folder("divergence"),
        in_folder("judge"),
    )
}
UNNAMED = "comparison"  # the kind of a link that names none


def studies() -> Mapping[str, type[Study]]:
    """The classes of studies, by the name of their kind in runs, links and files."""
    return {name: kind.part(kind.study) for name, kind in KINDS.items() if kind.study is not None}


def study_of(kind: str) -> type[Study]:
    """The class of studies of this kind; for an unknown kind, their base."""
    return studies().get(kind, Study)


def part_of(kind: str, name: str) -> Any:
    """What the module of this kind has by this name; None if the kind is not known here."""
    return KINDS[kind].part(name) if kind in KINDS else None
