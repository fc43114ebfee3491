"""The panels of a comparison while it runs."""

import dataclasses
from typing import Any

from workbench.kinds.comparison.study import Comparison
from workbench.runs.estimates import rows
from workbench.runs.events import At, Finished, Progress, Started
from workbench.show.laws import claim
from workbench.show.panel import Panel
from workbench.show.rules import rule
from workbench.show.strip import view
from workbench.studies.schemes import BASELINE


class LivePanels:
    """Follows the events of a comparison, and gives the value of the strip.

    The texts are those of the first repeat.

    Args:
        study: the comparison
    """

    def __init__(self, study: Comparison):
        methods = sorted(study.settings.methods, key=lambda m: m.name != BASELINE)  # it runs first
        self._prompt, self._methods = study.prompt, {m.name: m for m in methods}
        self._done: dict[str, Panel] = {}  # by decoder: its last panel
        self._temperature = study.settings.temperature
        self._packed = {
            m.name: Panel.waiting(m, study.prompt, self._temperature).to_json() for m in methods
        }
        self._sent: dict[str, str] = {}

    def update(self, event: Started | Progress | Finished) -> None:
        method = self._methods[event.at.decoder]
        if isinstance(event, Finished) and not event.at.lap:
            row = next(row for row in rows(event.run.results) if row.decoder == method.name)
            panel = self._done[method.name] = Panel.finished(
                row, self._prompt, claim(method, self._temperature)
            )
        elif event.at.repeat or event.at.lap:
            # The range over several timings comes at the end: to make it now would take time from
            # the next timing.
            if (done := self._done.get(method.name)) is None:
                return
            panel = dataclasses.replace(done, state=_again(event.at))
        else:
            progress = event if isinstance(event, Progress) else None
            panel = Panel.running(method, self._prompt, self._temperature, progress)
        self._packed[method.name] = dataclasses.replace(panel, rule=rule(method)).to_json()

    def value(self) -> dict[str, Any]:
        return view(self._packed.values(), "live")

    def changes(self) -> dict[str, Any]:
        """The value of the strip with None for each panel that has not changed since the last call.

        A finished panel is large; to send it ten times a second took time from the decoder.
        """
        changed = [
            None if self._sent.get(name) == text else text for name, text in self._packed.items()
        ]
        self._sent = dict(self._packed)
        return view(changed, "live")


def _again(at: At) -> str:
    """The repeat or timing that runs now, of a text that is already shown."""
    repeat = [f"repeat {at.repeat + 1}"] if at.repeat else []
    return ", ".join([*repeat, *([f"timing {at.lap + 1} of {at.laps}"] if at.lap else [])])
