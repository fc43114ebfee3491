"""Bars as an HTML table.

Names, bars and numbers are text that wraps, prints and is read aloud, at any width.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.show.looks import Look, mark

DECADES = 30.0  # largest / smallest, beyond which a linear axis shows only the largest


@dataclass(frozen=True)
class Bar:
    """One line of the table.

    Attributes:
        name: the name before the bar
        look: its colour and mark
        parts: the parts of the bar, in order; () if there is no figure
        text: the figure in words
        detail: more about the figure, in words
        low: lower end of the range of the sum, if that is known
        high: upper end, likewise
        faint: whether the bar is hatched; `BarChart.says` explains that
    """

    name: str
    look: Look
    parts: tuple[float, ...] = ()
    text: str = "–"
    detail: str = ""
    low: float | None = None
    high: float | None = None
    faint: bool = False

    @property
    def sum(self) -> float | None:
        return sum(self.parts) if self.parts else None


@dataclass(frozen=True)
class BarChart:
    """Bars under a title.

    Attributes:
        title: the title
        bars: the bars
        better: "higher" or "lower" if one is better: the best bar is on top, bars without a figure
            at the bottom
        says: a sentence under the title
    """

    title: str
    bars: Sequence[Bar]
    better: str | None = None
    says: str = ""

    @property
    def sorted(self) -> list[Bar]:
        found = [(bar.sum, bar) for bar in self.bars if bar.sum is not None]
        found.sort(key=lambda each: each[0], reverse=self.better != "lower")
        return [bar for _, bar in found] + [bar for bar in self.bars if bar.sum is None]

    @property
    def log(self) -> bool:
        """Whether values lie so far apart that only a logarithmic axis shows them all."""
        found = [bar.sum for bar in self.bars if bar.sum is not None]
        return bool(found) and min(found) > 0 and max(found) > DECADES * min(found)

    def html(self) -> str:
        """The chart, with names and figures escaped."""
        scale = _Scale(self)
        says = f'<p class="says">{html.escape(self.says)}</p>' if self.says else ""
        words = (self.better and f"{self.better} is better", self.log and "logarithmic scale")
        head = "".join(f'<span class="better">{each}</span>' for each in words if each)
        lines = "".join(_line(bar, scale, self.log) for bar in self.sorted)
        return (
            f'<figure class="wb-chart"><figcaption><h4>{html.escape(self.title)}</h4>{head}{says}'
            f'</figcaption><table class="wb-bars"><tbody>{lines}</tbody></table></figure>'
        )


class _Scale:
    """The place of a value, in percent of the room for bars."""

    def __init__(self, chart: BarChart):
        ends = [max(bar.sum, bar.high or 0.0) for bar in chart.bars if bar.sum is not None]
        self.top = max(ends, default=0) or 1.0
        self.start = (
            10 ** math.floor(math.log10(min(b.sum for b in chart.bars if b.sum)))
            if chart.log
            else 0.0
        )
        if chart.log and self.top <= self.start:
            self.top = 10 * self.start

    def __call__(self, value: float) -> float:
        if self.start:
            part = math.log(max(value, self.start) / self.start) / math.log(self.top / self.start)
        else:
            part = value / self.top
        return 100 * min(1.0, max(0.0, part))


def _line(bar: Bar, scale: _Scale, dots: bool) -> str:
    """A row of the table.

    On a logarithmic axis a length has no meaning, so a mark shows the value.
    """
    drawn, start = [], 0.0
    for i, part in enumerate(() if dots else bar.parts):
        end = scale(start + part)
        kind = "bar faint" if bar.faint or (i == 0 and len(bar.parts) > 1) else "bar"
        drawn.append(
            f'<i class="{kind}" style="left:{scale(start):.2f}%;'
            f'width:{max(0, end - scale(start)):.2f}%"></i>'
        )
        start += part
    if dots and bar.sum is not None:
        drawn.append(f'<i class="dot" style="left:{scale(bar.sum):.2f}%">{mark(bar.look)}</i>')
    if bar.low is not None and bar.high is not None:
        low, high = scale(bar.low), scale(bar.high)
        drawn.append(f'<i class="range" style="left:{low:.2f}%;width:{high - low:.2f}%"></i>')
    detail = f'<span class="wb-unseen"> {html.escape(bar.detail)}</span>' if bar.detail else ""
    title = html.escape(": ".join(filter(None, (bar.name, bar.detail or bar.text))))
    return (
        f'<tr title="{title}" style="--look:{bar.look.colour}">'
        f'<th scope="row">{mark(bar.look)}<bdi>{html.escape(bar.name)}</bdi></th>'
        f'<td class="track" aria-hidden="true"><div>{"".join(drawn)}</div></td>'
        f'<td class="value">{html.escape(bar.text)}{detail}</td></tr>'
    )
