"""The parts of a page of the Theory tab."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace as Values  # slider values by name

import plotly.graph_objects as go

from workbench.theory.estimates import Measured


@dataclass(frozen=True)
class Slider:
    """A slider; a whole `value` makes it whole-numbered.

    Attributes:
        name: its name among the slider values
        label: its label
        help: its help
        low: the least value
        high: the greatest value
        value: the value at first
        step: the step
    """

    name: str
    label: str
    help: str
    low: float
    high: float
    value: float
    step: float = 0.01


@dataclass(frozen=True)
class Card:
    """One figure.

    Attributes:
        title: its title
        formula: its formula in LaTeX
        says: its meaning for a reader who knows none of the papers
        figure: draws it for slider values and measurements
    """

    title: str
    formula: str
    says: str
    figure: Callable[[Values, Measured], go.Figure]


@dataclass(frozen=True)
class Page:
    """One paper; all texts are Markdown.

    Attributes:
        title: the decoder
        source: the paper
        sliders: the sliders
        cards: the figures
        now: the results of the formulas for slider values
        found: the measurements of a run
        tables: the paper's own tables, if any
    """

    title: str
    source: str
    sliders: tuple[Slider, ...]
    cards: tuple[Card, ...]
    now: Callable[[Values], str]
    found: Callable[[Measured], str]
    tables: Callable[[Measured], str] | None = None
