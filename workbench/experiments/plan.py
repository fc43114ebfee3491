"""A plan: the measurements of an experiment, as a TOML file describes them.

Every wrong key, type or value gives one sentence that names the file, the place and the key.
"""

import dataclasses
import itertools
import math
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from decoders import InputError, Method, catalog
from decoders.errors import quoted
from decoders.settings import nearest
from workbench.experiments import sets
from workbench.models.presets import EMBEDDED, PAIRS, PairChoice, tuned
from workbench.show.quantities import FIGURES
from workbench.studies.schemes import LARGEST_BATCH, SCHEMES
from workbench.studies.settings import Settings
from workbench.studies.study import GONE

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


MOST_CELLS = 5000  # of one part
DEFAULTS, TUNED = "defaults", "tuned"  # settings that a plan does not name


@dataclass(frozen=True)
class Keys:
    """A table of a plan.

    Attributes:
        place: where the table is, in words
        data: its keys and values
    """

    place: str
    data: Mapping[str, Any]

    def fault(self, key: str, wanted: str) -> InputError:
        return InputError(f"{self.place}: `{key}` must be {wanted}, not {quoted(self.data[key])}.")

    def refuse_others(self, *known: str) -> None:
        for key in self.data:
            self.one_of("key", key, known)

    def one_of(self, what: str, name: Any, known: Collection[str]) -> str:
        """The name, which must be a known one."""
        if not isinstance(name, str) or name not in known:
            near = nearest(str(name), known)
            raise InputError(f"{self.place}: there is no {what} {quoted(name)}: {near}")
        return name

    def read(self, key: str, default: Any, fits: Callable[[Any], bool], wanted: str) -> Any:
        """The value of a key, which must fit if it is there."""
        if key in self.data and not fits(self.data[key]):
            raise self.fault(key, wanted)
        return self.data.get(key, default)

    def text(self, key: str, default: str | None = None) -> str:
        if default is None and key not in self.data:
            raise InputError(f"{self.place}: the key `{key}` is missing.")
        return self.read(key, default, lambda value: isinstance(value, str), "a text")

    def texts(self, key: str, default: Sequence[str] = ()) -> tuple[str, ...]:
        return tuple(self.read(key, default, lambda value: _all(value, str), "a list of texts"))

    def flag(self, key: str, default: bool) -> bool:
        return self.read(key, default, lambda value: isinstance(value, bool), "true or false")

    def whole(self, key: str, default: Any, low: int = 1, high: int = 10**9) -> Any:
        wanted = f"a whole number from {low} to {high}"
        return self.read(key, default, lambda v: type(v) is int and low <= v <= high, wanted)

    def numbers(self, key: str, default: Sequence[Any], whole: bool = False) -> tuple[Any, ...]:
        """A number, or a list of numbers, which is a grid."""
        value = self.data.get(key, list(default))
        found = value if isinstance(value, list) else [value]
        kinds = (int,) if whole else (int, float)
        if not found or not all(type(v) in kinds for v in found):
            raise self.fault(key, f"a {'whole ' if whole else ''}number, or a list of them")
        return tuple(dict.fromkeys(found))

    def tables(self, key: str) -> list["Keys"]:
        value = self.data.get(key, [])
        if not _all(value, dict):
            raise InputError(f"{self.place}: write `{key}` as [[{key}]].")
        return [Keys(f"{self.place}, {key} {i}", v) for i, v in enumerate(value, 1)]


def _all(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(each, kind) for each in value)


def part(keys: Keys, number: int) -> Part:
    """Read a part.

    Args:
        keys: its table
        number: its number in the plan, from 1

    Raises:
        InputError: if a key or a value is wrong
    """
    keys.refuse_others(
        *(f.name for f in dataclasses.fields(Part) if f.name != "methods"), "decoders", "settings"
    )
    name = keys.text("name", f"part {number}")
    keys = Keys(f"{keys.place} ({name})", keys.data)
    found = Part(
        name=name,
        pairs=_pairs(keys),
        prompts=keys.texts("prompts", ["stories"]),
        methods=_methods(keys),
        about=keys.text("about", ""),
        limit=keys.whole("limit", None),
        max_new_tokens=keys.whole("max_new_tokens", 64, high=100_000),
        temperature=keys.numbers("temperature", [1.0]),
        top_k=keys.numbers("top_k", [0], whole=True),
        top_p=keys.numbers("top_p", [1.0]),
        min_p=keys.numbers("min_p", [0.0]),
        top_n_sigma=keys.numbers("top_n_sigma", [0.0]),
        seeds=keys.numbers("seeds", [0], whole=True),
        batch_sizes=keys.numbers("batch_sizes", [1], whole=True),
        schemes=keys.texts("schemes", ["unpadded"]),
        timed=keys.flag("timed", True),
        timings=keys.whole("timings", 1, high=100),
        ignore_eos=keys.flag("ignore_eos", False),
        chat_template=keys.flag("chat_template", False),
        system=keys.text("system", ""),
        temperature_last=keys.flag("temperature_last", False),
    )
    _check(keys, found)
    return found


def _check(keys: Keys, of: Part) -> None:
    for size in of.batch_sizes:
        if not 1 <= size <= LARGEST_BATCH:
            raise keys.fault("batch_sizes", f"from 1 to {LARGEST_BATCH}")
    for scheme in of.schemes:
        keys.one_of("scheme", scheme, SCHEMES)
    if max(of.batch_sizes) > 1 and not of.timed:
        raise InputError(
            f"{keys.place}: `batch_sizes` are about speed; keep `timed` true, or omit the sizes."
        )
    if of.timings > 1 and not of.timed:
        raise InputError(
            f"{keys.place}: `timings` are about speed; keep `timed` true, or omit `timings`."
        )
    if not of.prompts or not of.schemes:
        raise InputError(f"{keys.place}: `prompts` and `schemes` need at least one name each.")
    sampled: tuple[Any, ...] = (of.methods, *of.sampled)
    count = math.prod(map(len, (of.pairs, of.prompts, of.batch_sizes, of.schemes, *sampled)))
    if count > MOST_CELLS:
        raise InputError(
            f"{keys.place}: its grids make {count:,} cells; a part has at most {MOST_CELLS:,}."
        )
    try:
        for values in itertools.product(*sampled):
            settings(of, *values)
    except InputError as error:
        raise InputError(f"{keys.place}: {error}") from None


def _pairs(keys: Keys) -> tuple[PairChoice, ...]:
    names = keys.data.get("pairs", [EMBEDDED_NAME])
    if not isinstance(names, list) or not names:
        raise keys.fault("pairs", "a list of pairs")
    return tuple(_pair(name, keys.place) for name in names)


def _pair(name: Any, place: str) -> PairChoice:
    """A pair by a preset's name, or as [target, draft]."""
    if name == EMBEDDED_NAME:
        return EMBEDDED.choice()
    if isinstance(name, str) and name in PAIRS:
        return PAIRS[name].choice()
    if _all(name, str) and 1 <= len(name) <= 2:
        return PairChoice(*[*name, None][:2])
    known = nearest(str(name), [EMBEDDED_NAME, *PAIRS])
    raise InputError(f"{place}: there is no pair {quoted(name)}: {known} Or write [target, draft].")


def _methods(keys: Keys) -> tuple[Method, ...]:
    value = keys.data.get("decoders")
    if not isinstance(value, list) or not value:
        raise InputError(
            f"{keys.place}: `decoders` must be a list of names, or of tables with a name and "
            "settings."
        )
    usual, found = _usual(keys), list[Method]()
    for each in value:
        name, grid = (each.get("name"), each) if isinstance(each, dict) else (each, {})
        if name == "all" and grid == {}:
            found += [method(**usual.get(method.name, {})) for method in catalog.values()]
            continue
        name = keys.one_of("decoder", name, catalog)
        own = usual.get(name, {}) | {key: v for key, v in grid.items() if key != "name"}
        found += _grid(keys, name, own)
    return tuple(dict.fromkeys(found))


def _usual(keys: Keys) -> Mapping[str, dict[str, Any]]:
    """The settings that the decoders of a part begin with: none, or those kept with its pair."""
    kind = keys.one_of("kind of settings", keys.text("settings", DEFAULTS), (DEFAULTS, TUNED))
    if kind == DEFAULTS:
        return {}
    if _pairs(keys) != (EMBEDDED.choice(),):
        raise InputError(
            f'{keys.place}: only the pair "{EMBEDDED_NAME}" has tuned settings; omit `settings`, '
            "or `pairs`."
        )
    return tuned()


def _grid(keys: Keys, name: str, grid: Mapping[str, Any]) -> list[Method]:
    """A decoder with every combination of its settings.

    A list is a grid; if the setting is itself a list, a list of lists is a grid.
    """
    tuples = {f.name for f in dataclasses.fields(catalog[name]) if isinstance(f.default, tuple)}
    choices = []
    for key, value in grid.items():
        is_grid = isinstance(value, list) and (
            key not in tuples or isinstance(next(iter(value), None), list)
        )
        each = value if is_grid else [value]
        choices.append([(key, tuple(v) if isinstance(v, list) else v) for v in each])
    count = math.prod(map(len, choices))
    if not 1 <= count <= MOST_CELLS:
        raise InputError(
            f"{keys.place}: the settings of {name} make {count:,} combinations; make 1 to "
            f"{MOST_CELLS:,}."
        )
    try:
        return [catalog[name](**dict(values)) for values in itertools.product(*choices)]
    except InputError as error:
        raise InputError(f"{keys.place}: {error}") from None


FOLDER = Path(__file__).with_name("plans")
LARGEST_PLAN = 2**18  # bytes
KINDS = ("curve", "front", "heat")


def shipped() -> list[str]:
    """The names of the plans that come with the project."""
    return sorted(file.stem for file in FOLDER.glob("*.toml"))


def find(name: str) -> Plan:
    """A plan of the project by its name.

    Raises:
        InputError: if there is none
    """
    if name in GONE:
        raise InputError(GONE[name])
    if name not in shipped():
        raise InputError(f"There is no plan {quoted(name)}: {nearest(name, shipped())}")
    return parse((FOLDER / f"{name}.toml").read_text(encoding="utf-8"), f"{name}.toml")


def read(path: str | Path) -> Plan:
    """A user's own plan; only for callers who may name paths on this machine.

    Raises:
        InputError: if the file cannot be read or is not a plan
    """
    path = Path(path)
    try:
        if path.stat().st_size > LARGEST_PLAN:
            raise InputError(
                f"{path.name} is larger than {LARGEST_PLAN // 1024} KB; a plan is smaller."
            )
        return decoded(path.name, path.read_bytes())
    except OSError as error:
        raise InputError(
            f"{path.name} cannot be read: {error.strerror}; name a plan's file, or one of "
            f"{', '.join(shipped())}."
        ) from None


def decoded(name: str, data: bytes) -> Plan:
    """The plan in a file's bytes.

    Args:
        name: name of the file
        data: its content

    Raises:
        InputError: if it is not a plan
    """
    try:
        return parse(data.decode("utf-8-sig"), name)
    except UnicodeDecodeError:
        raise InputError(f"{name} is not text in UTF-8; save it as plain text in UTF-8.") from None


def parse(text: str, file: str) -> Plan:
    """A plan from its text.

    Args:
        text: the TOML
        file: name of the file, for messages and for the plan's own name

    Raises:
        InputError: if it is not a plan
    """
    if len(text) > LARGEST_PLAN:
        raise InputError(f"{file} is larger than {LARGEST_PLAN // 1024} KB; a plan is smaller.")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file} is not TOML: {error}.") from None
    except RecursionError:
        raise InputError(f"{file} is not a plan: it is nested too deeply.") from None
    top = Keys(file, data)
    if "engine" in data:
        raise InputError(f"{file}: {GONE['engine']}")
    top.refuse_others("title", "about", "notes", "part", "draw", "ordering", "printed")
    parts = tuple(part(keys, i) for i, keys in enumerate(top.tables("part"), 1))
    if not parts:
        raise InputError(f"{file} has no [[part]]; a plan needs at least one.")
    names = [p.name for p in parts]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise InputError(f"{file} has two parts named {quoted(twice[0])}; give each its own name.")
    return Plan(
        Path(file).stem,
        top.text("title", Path(file).stem),
        parts,
        top.text("about", ""),
        top.texts("notes"),
        tuple(_drawing(keys, names) for keys in top.tables("draw")),
        tuple(_ordering(keys, names) for keys in top.tables("ordering")),
        tuple(_printed(keys) for keys in top.tables("printed")),
        text,
    )


def _of_part(keys: Keys, names: Sequence[str]) -> str:
    return keys.one_of("part", keys.text("part", names[0]), names)


def _drawing(keys: Keys, parts: Sequence[str]) -> Drawing:
    keys.refuse_others("kind", "part", "x", "y", "title")
    kind = keys.text("kind")
    if kind not in KINDS:
        raise keys.fault("kind", " or ".join(KINDS))
    x, y = keys.text("x", ""), keys.texts("y")
    if (kind != "heat") != bool(x and y):
        raise InputError(
            f"{keys.place}: a {kind} "
            f"{'has neither `x` nor `y`' if kind == 'heat' else 'needs `x` and `y`'}."
        )
    for name in (*y, *([x] if kind == "front" else [])):
        keys.one_of("figure", name, FIGURES)
    return Drawing(kind, _of_part(keys, parts), x, y, keys.text("title", ""))


def _ordering(keys: Keys, names: Sequence[str]) -> Ordering:
    keys.refuse_others("says", "source", "part", "figure", "less", "than", "category")
    of = _of_part(keys, names)
    figure = keys.one_of("figure", keys.text("figure"), FIGURES)
    less, than = keys.text("less"), keys.text("than")
    says, source, category = keys.text("says"), keys.text("source"), keys.text("category", "")
    return Ordering(says, source, of, figure, less, than, category)


def _printed(keys: Keys) -> Printed:
    keys.refuse_others("source", "pair", "prompts", "device", "columns", "rows")
    rows = keys.data.get("rows")
    columns = tuple(keys.one_of("figure", name, FIGURES) for name in keys.texts("columns"))
    if not isinstance(rows, dict) or not rows:
        raise InputError(f"{keys.place}: `rows` must be a table of labels with their figures.")
    found = {}
    for label, values in rows.items():
        if not isinstance(values, list) or len(values) != len(columns):
            raise InputError(f"{keys.place}: row {quoted(label)} must have {len(columns)} figures.")
        if not all(v == "" or type(v) in (int, float) for v in values):
            raise InputError(
                f'{keys.place}: row {quoted(label)} must have numbers, or "" where the paper '
                "prints none."
            )
        found[label] = tuple(None if v == "" else v for v in values)
    return Printed(
        keys.text("source", ""), keys.text("pair", ""), keys.text("prompts", ""),
        keys.text("device", ""), columns, found,
    )  # fmt: skip


def restricted(plan: Plan, choice: PairChoice | None, limit: int | None) -> Plan:
    """The same plan on one pair, or with fewer prompts.

    Args:
        plan: the plan
        choice: the pair to use, or None for the plan's own pairs
        limit: the most prompts of each set, or None for the plan's own limits
    """
    parts = plan.parts
    if choice is not None:
        parts = tuple(replace(part, pairs=(choice,)) for part in parts)
    if limit is not None:
        parts = tuple(replace(part, limit=min(limit, part.limit or limit)) for part in parts)
    return replace(plan, parts=parts)


@dataclass(frozen=True)
class Request:
    """A request.

    Attributes:
        plan: the plan's text
        file: its name for messages
        choice: a pair instead of the plan's, None for the plan's own
        limit: the most prompts of each set
        data: the folder of downloaded sets of prompts
        paths: whether the plan may name files there
    """

    plan: str
    file: str
    choice: PairChoice | None = None
    limit: int | None = None
    data: str | None = None
    paths: bool = True

    def to_json(self) -> dict[str, Any]:
        """The request as plain data."""
        pair = self.choice
        choice = pair and [pair.target, pair.draft, pair.device, pair.dtype, pair.quantization]
        return {**vars(self), "choice": choice}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Request":
        """The request from plain data, of this version or of one that kept no quantization."""
        return Request(**{**data, "choice": data["choice"] and PairChoice(*data["choice"])})

    def read(self) -> tuple[Plan, dict[str, sets.ScoredSet]]:
        """The plan and its sets by name. No model is loaded.

        Raises:
            InputError: if the plan or a set cannot be used
        """
        plan = restricted(parse(self.plan, self.file), self.choice, self.limit)
        data = Path(self.data) if self.data else None
        names = dict.fromkeys(chain.from_iterable(part.prompts for part in plan.parts))
        return plan, {name: sets.find(name, data, self.paths) for name in names}
