"""What a page of the Theory tab is made of."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace as Values  # slider values by name

import plotly.graph_objects as go

from workbench.theory.estimates import Measured


@dataclass(frozen=True)
class Slider:
    """A whole `value` makes a whole-numbered slider."""

    name: str
    label: str
    help: str
    low: float
    high: float
    value: float
    step: float = 0.01


@dataclass(frozen=True)
class Card:
    """One figure, its formula in LaTeX, and what it says to a reader who knows none of the papers."""

    title: str
    formula: str
    says: str
    figure: Callable[[Values, Measured], go.Figure]


@dataclass(frozen=True)
class Page:
    """One paper: `now` is what the sliders give, `found` what a run measured, `tables` the paper's own, if any; all Markdown."""

    title: str
    source: str
    sliders: tuple[Slider, ...]
    cards: tuple[Card, ...]
    now: Callable[[Values], str]
    found: Callable[[Measured], str]
    tables: Callable[[Measured], str] | None = None
