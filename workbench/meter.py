"""Energy of a stretch of work, in joules, or the reason why it is not known."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Energy:
    """joules      None where not measured, never 0
    source      "measured: GPU energy counter", "integrated from N power samples", "CPU package (RAPL)", "below resolution",
                "not measured: reason" or "not attributable: reason"
    detail      what else a reader needs to judge the figure, such as the length of the window
    """

    joules: float | None
    source: str
    detail: str = ""
