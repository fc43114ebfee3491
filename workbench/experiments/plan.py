"""A plan: what an experiment is to measure, as a TOML file says it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from decoders import Method
from workbench.models.presets import EMBEDDED, PAIRS, PairChoice
from workbench.studies.settings import Settings

EMBEDDED_NAME = "embedded"
# The figures that drawings, orderings and printed tables may name.
FIGURES = (
    "tokens/s", "x greedy", "perplexity", "J/token", "tokens/call", "accepted/tested", "accepted/drafted", "score", "MB cache",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One sweep: every pair with every set of prompts, decoder, sampling, seed, batch size and scheme.

    methods      with their settings, all combinations of a grid spelled out;   about  a sentence for reports
    limit        prompts of each set at most, None for all
    timed        whether speed counts: then every prompt (or batch) is decoded by all decoders in turn, greedy among them
    timings      how often each prompt (or batch) is timed
    ignore_eos, chat_template   as in a batch study
    """

    name: str
    pairs: tuple[PairChoice, ...]
    prompts: tuple[str, ...]
    methods: tuple[Method, ...]
    about: str = ""
    limit: int | None = None
    max_new_tokens: int = 64
    temperature: tuple[float, ...] = (1.0,)
    top_k: tuple[int, ...] = (0,)
    top_p: tuple[float, ...] = (1.0,)
    seeds: tuple[int, ...] = (0,)
    batch_sizes: tuple[int, ...] = (1,)
    schemes: tuple[str, ...] = ("unpadded",)
    timed: bool = True
    timings: int = 1
    ignore_eos: bool = False
    chat_template: bool = False


@dataclass(frozen=True)
class Drawing:
    """A figure of the report. kind  "curve" (y over a setting x), "front" (y against x, a point for each cell) or "heat" (the speed-up
    by category and batch size)."""

    kind: str
    part: str
    x: str = ""
    y: tuple[str, ...] = ()
    title: str = ""


@dataclass(frozen=True)
class Ordering:
    """A claim of a paper, to be tested on our rows: the figure of `less` is below that of `than`. Both are labels of a part's cells."""

    says: str
    source: str
    part: str
    figure: str
    less: str
    than: str


@dataclass(frozen=True)
class Printed:
    """A table of a paper: for each label the figures that it printed. None for what it left out."""

    source: str
    pair: str
    prompts: str
    device: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float | None, ...]]


@dataclass(frozen=True)
class Plan:
    """title, about   what it is;   notes  what could not be taken from the paper, and what differs, a sentence each"""

    name: str
    title: str
    parts: tuple[Part, ...]
    about: str = ""
    notes: tuple[str, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    orderings: tuple[Ordering, ...] = ()
    printed: tuple[Printed, ...] = ()
    source: str = field(default="", repr=False)  # the TOML it was read from


def settings(part: Part, method: Method, temperature: float, top_k: int, top_p: float, seed: int) -> Settings:
    """What one cell of a part shares with a comparison. Raises InputError for values out of range."""
    return Settings((method,), part.max_new_tokens, temperature, top_k, top_p, seed, 1, 1, "quick", part.chat_template)


def pair_name(choice: PairChoice) -> str:
    """How reports name a pair: its preset's name, or its models."""
    for name, preset in PAIRS.items():
        if (preset.target_source, preset.draft_source) == (choice.target, choice.draft):
            return EMBEDDED_NAME if preset is EMBEDDED else name
    return choice.title


def plain(value: Any) -> Any:
    """Tuples as lists, as JSON has them."""
    return [plain(v) for v in value] if isinstance(value, (tuple, list)) else value
