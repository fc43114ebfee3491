"""The panels of a comparison while it runs."""

from typing import Any

from workbench.measuring.session import Finished, Progress, Started
from workbench.runs.record import RunResult
from workbench.show import strip as views
from workbench.show.quantities import by_decoder
from workbench.studies.settings import Settings


class LivePanels:
    """Follows a session's events; `value` is what the strip shows now. The text shown is the first repeat's."""

    def __init__(self, prompt: str, settings: Settings):
        self.prompt = prompt
        self.laws = {m.name: m.law for m in settings.methods}
        self.jobs = len(self.laws) * settings.repeats
        order = sorted(self.laws, key=lambda name: name != "greedy")  # it runs first, as the others are held against it
        self.packed = {name: views.pack(views.panel(name, prompt, status="waiting", state="waiting")) for name in order}
        self.results: list[RunResult] = []

    def update(self, event: Started | Progress | Finished) -> None:
        if isinstance(event, Finished):
            self.results.append(event.result)
            name = event.result.decoder
            panel = views.finished_panel(by_decoder(self.results)[name], self.prompt, self.laws[name])
        elif event.repeat:
            return
        elif isinstance(event, Started):
            name = event.decoder
            panel = views.panel(name, self.prompt, status="running", state="reading the prompt")
        else:
            name = event.decoder
            panel = views.panel(
                name,
                self.prompt,
                status="running",
                state=f"token {len(event.tokens)} of {event.budget}",
                tokens=event.tokens,
                rounds=[views.refused(r) for r in event.rounds],
                provisional=event.provisional,
            )
        self.packed[name] = views.pack(panel)

    def value(self) -> dict[str, Any]:
        return views.view(self.packed.values(), "live")
