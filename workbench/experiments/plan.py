"""A plan: the measurements of an experiment, as a TOML file describes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from decoders import Method
from workbench.models.presets import EMBEDDED, PairChoice
from workbench.studies.settings import Settings

EMBEDDED_NAME = "embedded"
GRID = ("temperature", "top_k", "top_p", "min_p", "top_n_sigma")  # sampling that a part varies


@dataclass(frozen=True)
class Part:
    """One sweep: every pair with every set, decoder, sampling, seed, batch size and scheme.

    Attributes:
        name: name of the part
        pairs: pairs of models
        prompts: names of sets of prompts
        methods: decoders with their settings, all combinations of a grid spelled out
        about: a sentence for reports
        limit: the most prompts of each set, None for all
        max_new_tokens: the most tokens of a text
        temperature: sampling temperatures
        top_k: top-k values
        top_p: top-p values
        min_p: min-p values
        top_n_sigma: top-nσ values
        temperature_last: see `Warping`
        seeds: seeds of the first prompt
        batch_sizes: numbers of requests decoded at once
        schemes: how they share a batch
        timed: whether speed counts; then all decoders, including greedy, take turns on each prompt
            or batch
        timings: how often each prompt or batch is timed
        ignore_eos: as in a batch study
        chat_template: as in a batch study
        system: likewise
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
    min_p: tuple[float, ...] = (0.0,)
    top_n_sigma: tuple[float, ...] = (0.0,)
    seeds: tuple[int, ...] = (0,)
    batch_sizes: tuple[int, ...] = (1,)
    schemes: tuple[str, ...] = ("unpadded",)
    timed: bool = True
    timings: int = 1
    ignore_eos: bool = False
    chat_template: bool = False
    system: str = ""
    temperature_last: bool = False

    @property
    def sampled(self) -> tuple[tuple[float, ...], ...]:
        """The values of each setting in GRID, and the seeds."""
        return (*(getattr(self, name) for name in GRID), self.seeds)


@dataclass(frozen=True)
class Drawing:
    """A chart of the report.

    Attributes:
        kind: "curve" (y over a setting x), "front" (y against x, a point for each cell) or "heat"
            (the speed-up by category, or by batch size)
        part: name of the part
        x: the setting of a curve, or the figure of a front
        y: figures, each of which makes a chart
        title: title of the chart
    """

    kind: str
    part: str
    x: str = ""
    y: tuple[str, ...] = ()
    title: str = ""


@dataclass(frozen=True)
class Ordering:
    """A claim of a paper, to be tested on our rows: the figure of `less` is below that of `than`.

    Attributes:
        says: the claim in words
        source: the paper, with its table or section
        part: name of the part
        figure: name of the figure
        less: label of a cell of the part
        than: label of another one
        category: of the prompts that count, "" for all
    """

    says: str
    source: str
    part: str
    figure: str
    less: str
    than: str
    category: str = ""


@dataclass(frozen=True)
class Printed:
    """A table of a paper.

    Attributes:
        source: the paper and the table
        pair: the paper's pair
        prompts: the paper's set of prompts
        device: the paper's device
        columns: names of the figures
        rows: for each label the printed figures, None for those that the paper leaves out
    """

    source: str
    pair: str
    prompts: str
    device: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float | None, ...]]


@dataclass(frozen=True)
class Plan:
    """A plan.

    Attributes:
        name: name of its file
        title: its title
        parts: its sweeps
        about: a description
        notes: sentences on details that the paper omits, and on differences from it
        drawings: charts of the report
        orderings: claims of papers to test
        printed: tables of papers to show beside ours
        source: the TOML that it was read from
    """

    name: str
    title: str
    parts: tuple[Part, ...]
    about: str = ""
    notes: tuple[str, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    orderings: tuple[Ordering, ...] = ()
    printed: tuple[Printed, ...] = ()
    source: str = field(default="", repr=False)

    @property
    def names(self) -> list[str]:
        """The names of all parts."""
        return [part.name for part in self.parts]


def settings(part: Part, method: Method, *sampled: Any) -> Settings:
    """The settings of one cell of a part.

    Args:
        part: the part
        method: the decoder with its settings
        sampled: a value for each setting in GRID, and the seed of the first prompt

    Raises:
        InputError: if a value is out of range
    """
    return Settings(
        (method,), part.max_new_tokens, **dict(zip((*GRID, "seed"), sampled, strict=True)),
        temperature_last=part.temperature_last, timings=1, chat_template=part.chat_template,
        system=part.system,
    )  # fmt: skip


def pair_name(choice: PairChoice) -> str:
    """The name of a pair in reports: its preset's name, or its models."""
    if choice.preset is None:
        return choice.title
    return EMBEDDED_NAME if choice.preset is EMBEDDED else choice.preset.name
