"""A plan: the measurements of an experiment, as a TOML file describes them; and a request for it.

Every wrong key, type or value gives one sentence that names the file, the place and the key.
"""

import itertools
import math
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import astuple, dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
)

from decoders import InputError, Method, Warping, catalog
from decoders.errors import quoted
from decoders.settings import nearest
from workbench.experiments import sets
from workbench.models.presets import EMBEDDED, PAIRS, PairChoice, tuned
from workbench.show.quantities import FIGURES
from workbench.studies.settings import WARPING, Settings
from workbench.studies.study import GONE, LARGEST_BATCH, SCHEMES

EMBEDDED_NAME = "embedded"
PRESETS = {EMBEDDED_NAME: EMBEDDED, **PAIRS}
MOST_CELLS = 5000  # of one part
DEFAULTS, TUNED = "defaults", "tuned"  # settings that a plan does not name
# Fields that have another name in a plan's file.
KEYS = {"methods": "decoders", "parts": "part", "drawings": "draw", "orderings": "ordering"}


class PlanTable:
    """A table of a plan's file, which may have no other keys."""

    __pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


# ---- The values that a plan's keys may have


def one_of(what: str, known: Collection[str]) -> AfterValidator:
    def checked(name: str) -> str:
        if name not in known:
            raise InputError(f"there is no {what} {quoted(name)}: {nearest(name, known)}")
        return name

    return AfterValidator(checked)


# A value, or a list of values, which is a grid.
LISTED = BeforeValidator(lambda value: value if isinstance(value, list | tuple) else (value,))
ONCE = AfterValidator(lambda values: tuple(dict.fromkeys(values)))
SOME = Field(min_length=1)
Wholes = Annotated[tuple[StrictInt, ...], SOME, LISTED, ONCE]
Sizes = Annotated[
    tuple[Annotated[StrictInt, Field(ge=1, le=LARGEST_BATCH)], ...], SOME, LISTED, ONCE
]
Numbers = Annotated[tuple[StrictFloat | StrictInt, ...], SOME, LISTED, ONCE]
Named = Annotated[StrictStr, one_of("figure", FIGURES)]
PaperFigure = Annotated[
    StrictFloat | StrictInt | None, BeforeValidator(lambda value: None if value == "" else value)
]


def _pair(name: Any) -> PairChoice:
    """A pair by a preset's name, or as [target, draft]."""
    if isinstance(name, str) and name in PRESETS:
        return PRESETS[name].choice()
    if isinstance(name, list) and len(name) in (1, 2) and all(isinstance(n, str) for n in name):
        return PairChoice(*name)
    near = nearest(str(name), PRESETS)
    raise InputError(f"there is no pair {quoted(name)}: {near} Or write [target, draft].")


# The sampling of a part: a list of values for each number in a Warping, and its switches.
SWITCHES = tuple(each.name for each in fields(Warping) if type(each.default) is bool)
GRID = tuple(name for name in WARPING if name not in SWITCHES)
KINDS: dict[type, Any] = {int: Wholes, float: Numbers, bool: StrictBool}
Sampling: Any = make_dataclass(
    "Sampling",
    [
        (n, KINDS[type(d)], d if n in SWITCHES else (d,))
        for n, d in ((each.name, each.default) for each in fields(Warping))
    ],
    bases=(PlanTable,), frozen=True, kw_only=True,
)  # fmt: skip


@dataclass(frozen=True)
class Sweep(Sampling):
    """One sweep: every pair with every set, decoder, sampling, seed, batch size and scheme.

    Of each number in a `Warping` it has a list of values.

    Attributes:
        name: name of the part
        pairs: pairs of models
        prompts: names of sets of prompts
        methods: decoders with their settings, all combinations of a grid spelled out
        about: a sentence for reports
        limit: the most prompts of each set, None for all
        max_new_tokens: the most tokens of a text
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

    name: StrictStr
    pairs: Annotated[tuple[Annotated[PairChoice, BeforeValidator(_pair)], ...], SOME]
    prompts: Annotated[tuple[StrictStr, ...], SOME]
    methods: Annotated[tuple[Method, ...], Field(validation_alias="decoders")]
    about: StrictStr = ""
    limit: Annotated[StrictInt | None, Field(ge=1)] = None
    max_new_tokens: Annotated[StrictInt, Field(ge=1, le=100_000)] = 64
    seeds: Wholes = (0,)
    batch_sizes: Sizes = (1,)
    schemes: Annotated[tuple[Annotated[StrictStr, one_of("scheme", SCHEMES)], ...], SOME] = (
        "unpadded",
    )
    timed: StrictBool = True
    timings: Annotated[StrictInt, Field(ge=1, le=100)] = 1
    ignore_eos: StrictBool = False
    chat_template: StrictBool = False
    system: StrictStr = ""

    def __post_init__(self) -> None:
        for name, speeds in (("batch_sizes", max(self.batch_sizes)), ("timings", self.timings)):
            if speeds > 1 and not self.timed:
                raise InputError(f"`{name}` are about speed; keep `timed` true, or omit `{name}`.")
        sampled: tuple[Any, ...] = (self.methods, *self.sampled)
        grids = (self.pairs, self.prompts, self.batch_sizes, self.schemes, *sampled)
        count = math.prod(map(len, grids))
        if count > MOST_CELLS:
            raise InputError(f"its grids make {count:,} cells; a part has at most {MOST_CELLS:,}.")
        for values in itertools.product(*sampled):
            settings(self, *values)

    @property
    def sampled(self) -> tuple[tuple[float, ...], ...]:
        return (*(getattr(self, name) for name in GRID), self.seeds)


@dataclass(frozen=True)
class Drawing(PlanTable):
    """A chart of the report.

    Attributes:
        kind: "curve" (y over a setting x) or "front" (y against x, a point for each cell)
        x: the setting of a curve, or the figure of a front
        y: figures, each of which makes a chart
        part: name of the part
        title: title of the chart
    """

    kind: Literal["curve", "front"]
    x: StrictStr
    y: Annotated[tuple[Named, ...], SOME]
    part: StrictStr
    title: StrictStr = ""

    def __post_init__(self) -> None:
        if self.kind == "front" and self.x not in FIGURES:
            raise InputError(f"there is no figure {quoted(self.x)}: {nearest(self.x, FIGURES)}")


@dataclass(frozen=True)
class Ordering(PlanTable):
    """A claim of a paper, to be tested on our rows: the figure of `less` is below that of `than`.

    Attributes:
        says: the claim in words
        source: the paper, with its table or section
        figure: name of the figure
        less: label of a cell of the part
        than: label of another one
        part: name of the part
        category: of the prompts that count, "" for all
    """

    says: StrictStr
    source: StrictStr
    figure: Named
    less: StrictStr
    than: StrictStr
    part: StrictStr
    category: StrictStr = ""


@dataclass(frozen=True)
class Printed(PlanTable):
    """A table of a paper.

    Attributes:
        source: the paper and the table
        pair: the paper's pair
        prompts: the paper's set of prompts
        device: the paper's device
        columns: names of the figures
        rows: for each label the printed figures, None for those that the paper leaves out
    """

    rows: Annotated[dict[str, tuple[PaperFigure, ...]], SOME]
    columns: tuple[Named, ...] = ()
    source: StrictStr = ""
    pair: StrictStr = ""
    prompts: StrictStr = ""
    device: StrictStr = ""

    def __post_init__(self) -> None:
        for label, values in self.rows.items():
            if len(values) != len(self.columns):
                raise InputError(f"row {quoted(label)} must have {len(self.columns)} figures.")


def _methods(value: Any, usual: Mapping[str, dict[str, Any]]) -> tuple[Method, ...]:
    if not isinstance(value, list) or not value:
        raise InputError(
            "`decoders` must be a list of names, or of tables with a name and settings."
        )
    methods = list[Method]()
    for each in value:
        name, grid = (each.get("name"), each) if isinstance(each, dict) else (each, {})
        if name == "all" and grid == {}:
            methods += [method(**usual.get(method.name, {})) for method in catalog.values()]
            continue
        if not isinstance(name, str) or name not in catalog:
            near = nearest(str(name), catalog)
            raise InputError(f"there is no decoder {quoted(name)}: {near}")
        own = usual.get(name, {}) | {key: v for key, v in grid.items() if key != "name"}
        methods += _grid(name, own)
    return tuple(dict.fromkeys(methods))


def _grid(name: str, grid: Mapping[str, Any]) -> list[Method]:
    """A decoder with every combination of its settings.

    A list is a grid; if the setting is itself a list, a list of lists is a grid.
    """
    lists = {f.name for f in fields(catalog[name]) if isinstance(f.default, tuple)}
    choices = []
    for key, value in grid.items():
        is_grid = isinstance(value, list) and (
            key not in lists or isinstance(next(iter(value), None), list)
        )
        each = value if is_grid else [value]
        choices.append([(key, tuple(v) if isinstance(v, list) else v) for v in each])
    count = math.prod(map(len, choices))
    if not 1 <= count <= MOST_CELLS:
        raise InputError(
            f"the settings of {name} make {count:,} combinations; make 1 to {MOST_CELLS:,}."
        )
    return [catalog[name](**dict(values)) for values in itertools.product(*choices)]


def _spelled(data: dict[str, Any]) -> dict[str, Any]:
    kind, pairs = data.get("settings", DEFAULTS), data.get("pairs", [EMBEDDED_NAME])
    if kind not in (DEFAULTS, TUNED):
        raise InputError(f"`settings` must be {DEFAULTS} or {TUNED}, not {quoted(kind)}.")
    if kind == TUNED and pairs != [EMBEDDED_NAME]:
        raise InputError(
            f'only the pair "{EMBEDDED_NAME}" has tuned settings; omit `settings`, or `pairs`.'
        )
    methods = _methods(data.get("decoders"), tuned() if kind == TUNED else {})
    rest = {key: value for key, value in data.items() if key != "settings"}
    return {"prompts": ["stories"], **rest, "pairs": pairs, "decoders": methods}


@dataclass(frozen=True)
class Plan(PlanTable):
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

    name: Annotated[str, Field(validation_alias="its file")]
    title: StrictStr
    parts: Annotated[tuple[Sweep, ...], Field(validation_alias="part")]
    about: StrictStr = ""
    notes: tuple[StrictStr, ...] = ()
    drawings: Annotated[tuple[Drawing, ...], Field(validation_alias="draw")] = ()
    orderings: Annotated[tuple[Ordering, ...], Field(validation_alias="ordering")] = ()
    printed: tuple[Printed, ...] = ()
    source: Annotated[str, Field(validation_alias="its text")] = field(default="", repr=False)

    def __post_init__(self) -> None:
        if twice := sorted({name for name in self.names if self.names.count(name) > 1}):
            raise InputError(f"two parts are named {quoted(twice[0])}; give each its own name.")
        named = [each.part for each in self.drawings] + [each.part for each in self.orderings]
        for name in named:
            if name not in self.names:
                raise InputError(f"there is no part {quoted(name)}: {nearest(name, self.names)}")

    @property
    def names(self) -> list[str]:
        return [part.name for part in self.parts]


def settings(part: Sweep, method: Method, *sampled: Any) -> Settings:
    """The settings of one cell of a part.

    Args:
        sampled: a value for each setting in GRID, and the seed of the first prompt

    Raises:
        InputError: if a value is out of range
    """
    return Settings(
        (method,), part.max_new_tokens, **dict(zip((*GRID, "seed"), sampled, strict=True)),
        **{name: getattr(part, name) for name in SWITCHES}, timings=1,
        chat_template=part.chat_template, system=part.system,
    )  # fmt: skip


def pair_name(choice: PairChoice) -> str:
    known = (name for name, preset in PRESETS.items() if preset is choice.preset)
    return next(known, choice.title)


FOLDER = Path(__file__).with_name("plans")
LARGEST_PLAN = 2**18  # bytes


def shipped() -> list[str]:
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
        return parse(path.read_bytes().decode("utf-8-sig"), path.name)
    except UnicodeDecodeError:
        raise InputError(
            f"{path.name} is not text in UTF-8; save it as plain text in UTF-8."
        ) from None
    except OSError as error:
        raise InputError(
            f"{path.name} cannot be read: {error.strerror}; name a plan's file, or one of "
            f"{', '.join(shipped())}."
        ) from None


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
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{file} is not TOML: {error}.") from None
    if "engine" in data:
        raise InputError(f"{file}: {GONE['engine']}")
    parts = [
        _valid(Sweep, f"{file}, {place} ({each.get('name', place)})", {"name": place, **each})
        for place, each in _tables(file, data, "part")
    ]
    if not parts:
        raise InputError(f"{file} has no [[part]]; a plan needs at least one.")
    tables = {"part": parts}
    for key, shape in BESIDE.items():
        usual = {} if shape is Printed else {"part": parts[0].name}
        tables[key] = [
            _valid(shape, f"{file}, {place}", {**usual, **each})
            for place, each in _tables(file, data, key)
            if each.get("kind") != "heat"  # charts of earlier versions
        ]
    name = Path(file).stem
    return _valid(Plan, file, {"title": name, **data, **tables, "its file": name, "its text": text})


BESIDE = {"draw": Drawing, "ordering": Ordering, "printed": Printed}


def _tables(file: str, data: dict[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
    """The tables [[key]] of a plan, each with its place."""
    tables = data.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise InputError(f"{file}: write `{key}` as [[{key}]].")
    return [(f"{key} {i}", each) for i, each in enumerate(tables, 1)]


def _valid(shape: type[Any], place: str, data: dict[str, Any]) -> Any:
    """The table of a plan; InputError says its first fault, with its place in the file."""
    try:
        return TypeAdapter(shape).validate_python(_spelled(data) if shape is Sweep else data)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
    cause, key = fault.get("ctx", {}).get("error"), next(iter(fault["loc"]), "")
    says = (fault["msg"][:1].lower() + fault["msg"][1:]).replace("tuple", "list")
    words = f"`{key}`: {says}, not {quoted(fault['input'])}."
    if isinstance(cause, InputError):
        words = str(cause)
    elif fault["type"] == "unexpected_keyword_argument":
        keys = {KEYS.get(f.name, f.name) for f in fields(shape)} | {"settings"}
        words = f"there is no key {quoted(key)}: {nearest(str(key), sorted(keys))}"
    elif fault["type"] == "missing":
        words = f"the key `{key}` is missing."
    raise InputError(f"{place}: {words}")


def restricted(plan: Plan, choice: PairChoice | None, limit: int | None) -> Plan:
    """The same plan on one pair, or with fewer prompts.

    Args:
        choice: the pair to use, or None for the plan's own pairs
        limit: the most prompts of each set, or None for the plan's own limits
    """
    parts = [
        replace(
            part,
            pairs=part.pairs if choice is None else (choice,),
            limit=min((most for most in (limit, part.limit) if most), default=None),
        )
        for part in plan.parts
    ]
    return replace(plan, parts=tuple(parts))


@dataclass(frozen=True)
class ExperimentRequest:
    """A request.

    Attributes:
        plan: the plan's text
        file: its name for messages
        choice: a pair instead of the plan's, None for the plan's own
        limit: the most prompts of each set
        data: the folder of downloaded sets of prompts
    """

    plan: str
    file: str
    choice: PairChoice | None = None
    limit: int | None = None
    data: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "choice": self.choice and list(astuple(self.choice))}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "ExperimentRequest":
        """The request from plain data, of this version or of one that kept no quantization."""
        known = {each.name: data[each.name] for each in fields(ExperimentRequest)}
        return ExperimentRequest(
            **known | {"choice": data["choice"] and PairChoice(*data["choice"])}
        )

    def read(self) -> tuple[Plan, dict[str, sets.ScoredSet]]:
        """The plan and its sets by name. No model is loaded.

        Raises:
            InputError: if the plan or a set cannot be used
        """
        plan = restricted(parse(self.plan, self.file), self.choice, self.limit)
        data = Path(self.data) if self.data else None
        names = dict.fromkeys(itertools.chain.from_iterable(part.prompts for part in plan.parts))
        return plan, {name: sets.find(name, data) for name in names}
