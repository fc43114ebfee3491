"""Reads plans: every wrong key, type or value is one sentence that names the file, the place and the key."""

import dataclasses
import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decoders import InputError, Method, catalog
from decoders.settings import nearest
from workbench.experiments.plan import EMBEDDED_NAME, FIGURES, Drawing, Ordering, Part, Plan, Printed, settings
from workbench.models.presets import EMBEDDED, PAIRS, PairChoice
from workbench.studies.batch import LARGEST_BATCH
from workbench.studies.schemes import SCHEMES

FOLDER = Path(__file__).with_name("plans")
LARGEST_PLAN = 2**18  # bytes
MOST_CELLS = 5000  # of one part
KINDS = ("curve", "front", "heat")


def shipped() -> list[str]:
    """The names of the plans that come with the project."""
    return sorted(file.stem for file in FOLDER.glob("*.toml"))


def find(name: str) -> Plan:
    """A plan of the project by its name. Raises InputError if there is none."""
    if name not in shipped():
        raise InputError(f"There is no plan {name!r}: {nearest(name, shipped())}")
    return parse((FOLDER / f"{name}.toml").read_text(encoding="utf-8"), f"{name}.toml")


def read(path: str | Path) -> Plan:
    """A plan of one's own: only for callers who may name paths on this machine."""
    path = Path(path)
    try:
        if path.stat().st_size > LARGEST_PLAN:
            raise InputError(f"{path.name} is larger than {LARGEST_PLAN // 1024} KB; a plan is smaller.")
        return parse(path.read_text(encoding="utf-8-sig"), path.name)
    except OSError as error:
        raise InputError(
            f"{path.name} cannot be read: {error.strerror}; give a plan's file, or one of {', '.join(shipped())}."
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"{path.name} is not text in UTF-8; save it as plain text in UTF-8.") from None


def parse(text: str, file: str) -> Plan:
    """A plan from its text; `file` names it in messages. Raises InputError."""
    if len(text) > LARGEST_PLAN:
        raise InputError(f"{file} is larger than {LARGEST_PLAN // 1024} KB; a plan is smaller.")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file} is not TOML: {error}.") from None
    except RecursionError:
        raise InputError(f"{file} is not a plan: it is nested too deeply.") from None
    top = _Table(file, data)
    top.refuse_others("title", "about", "notes", "part", "draw", "ordering", "printed")
    parts = tuple(_part(table, i) for i, table in enumerate(top.tables("part"), 1))
    if not parts:
        raise InputError(f"{file} has no [[part]]; a plan needs at least one.")
    names = [part.name for part in parts]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise InputError(f"{file} has two parts named {twice[0]!r}; give each its own name.")
    return Plan(
        Path(file).stem,
        top.text("title", Path(file).stem),
        parts,
        top.text("about", ""),
        top.texts("notes"),
        tuple(_drawing(table, names) for table in top.tables("draw")),
        tuple(_ordering(table, names) for table in top.tables("ordering")),
        tuple(_printed(table) for table in top.tables("printed")),
        text,
    )


@dataclass(frozen=True)
class _Table:
    """A table of a plan, and the words that say where it is."""

    place: str
    data: Mapping[str, Any]

    def fault(self, key: str, wanted: str) -> InputError:
        return InputError(f"{self.place}: `{key}` must be {wanted}, not {self.data[key]!r:.80}.")

    def refuse_others(self, *known: str) -> None:
        for key in self.data:
            if key not in known:
                raise InputError(f"{self.place}: there is no key {key!r:.80}: {nearest(key, known)}")

    def text(self, key: str, default: str | None = None) -> str:
        value = self.data.get(key, default)
        if value is None:
            raise InputError(f"{self.place}: the key `{key}` is missing.")
        if not isinstance(value, str):
            raise self.fault(key, "a text")
        return value

    def texts(self, key: str, default: Sequence[str] = ()) -> tuple[str, ...]:
        value = self.data.get(key, list(default))
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.fault(key, "a list of texts")
        return tuple(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.data.get(key, default)
        if not isinstance(value, bool):
            raise self.fault(key, "true or false")
        return value

    def whole(self, key: str, default: Any, low: int = 1, high: int = 10**9) -> Any:
        value = self.data.get(key, default)
        if key in self.data and (type(value) is not int or not low <= value <= high):
            raise self.fault(key, f"a whole number from {low} to {high}")
        return value

    def numbers(self, key: str, default: Sequence[Any], whole: bool = False) -> tuple[Any, ...]:
        """A number, or a list of numbers: a grid."""
        value = self.data.get(key, list(default))
        found = value if isinstance(value, list) else [value]
        kinds = (int,) if whole else (int, float)
        if not found or not all(type(v) in kinds for v in found):
            raise self.fault(key, f"a {'whole ' if whole else ''}number, or a list of them")
        return tuple(dict.fromkeys(found))

    def tables(self, key: str) -> list["_Table"]:
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            raise InputError(f"{self.place}: write `{key}` as [[{key}]].")
        return [_Table(f"{self.place}, {key} {i}", v) for i, v in enumerate(value, 1)]


def _part(table: _Table, number: int) -> Part:
    fields = [f.name for f in dataclasses.fields(Part)]
    table.refuse_others(*(f for f in fields if f != "methods"), "decoders")
    name = table.text("name", f"part {number}")
    table = _Table(f"{table.place} ({name})", table.data)
    part = Part(
        name,
        _pairs(table),
        table.texts("prompts", ["stories"]),
        _methods(table),
        table.whole("limit", None),
        table.whole("max_new_tokens", 64, high=100_000),
        table.numbers("temperature", [1.0]),
        table.numbers("top_k", [0], whole=True),
        table.numbers("top_p", [1.0]),
        table.numbers("seeds", [0], whole=True),
        table.numbers("batch_sizes", [1], whole=True),
        table.texts("schemes", ["unpadded"]),
        table.flag("timed", True),
        table.whole("timings", 1, high=100),
        table.flag("ignore_eos", False),
        table.flag("chat_template", False),
    )
    _check(table, part)
    return part


def _check(table: _Table, part: Part) -> None:
    """Everything that can be said before a model is loaded."""
    for size in part.batch_sizes:
        if not 1 <= size <= LARGEST_BATCH:
            raise table.fault("batch_sizes", f"from 1 to {LARGEST_BATCH}")
    for scheme in part.schemes:
        if scheme not in SCHEMES:
            raise InputError(f"{table.place}: there is no scheme {scheme!r:.80}: {nearest(scheme, SCHEMES)}")
    if max(part.batch_sizes) > 1 and not part.timed:
        raise InputError(f"{table.place}: `batch_sizes` are about speed; leave `timed` true, or leave the sizes out.")
    if part.timings > 1 and not part.timed:
        raise InputError(f"{table.place}: `timings` are about speed; leave `timed` true, or leave them out.")
    if not part.prompts or not part.schemes:
        raise InputError(f"{table.place}: `prompts` and `schemes` need at least one name each.")
    grid = [
        part.pairs,
        part.prompts,
        part.methods,
        part.temperature,
        part.top_k,
        part.top_p,
        part.seeds,
        part.batch_sizes,
    ]
    count = len(part.schemes)
    for values in grid:
        count *= len(values)
    if count > MOST_CELLS:
        raise InputError(f"{table.place}: its grids make {count:,} cells; a part has at most {MOST_CELLS:,}.")
    try:
        for values in itertools.product(part.methods, part.temperature, part.top_k, part.top_p, part.seeds):
            settings(part, *values)
    except InputError as error:
        raise InputError(f"{table.place}: {error}") from None


def _pairs(table: _Table) -> tuple[PairChoice, ...]:
    value = table.data.get("pairs", [EMBEDDED_NAME])
    if not isinstance(value, list) or not value:
        raise table.fault("pairs", "a list of pairs")
    return tuple(pair(name, table.place) for name in value)


def pair(name: Any, place: str) -> PairChoice:
    """A pair by a preset's name, or as [target, draft]."""
    if name == EMBEDDED_NAME:
        return EMBEDDED.choice()
    if isinstance(name, str) and name in PAIRS:
        return PAIRS[name].choice()
    if isinstance(name, list) and 1 <= len(name) <= 2 and all(isinstance(n, str) for n in name):
        return PairChoice(*[*name, None][:2])
    names = [EMBEDDED_NAME, *PAIRS]
    raise InputError(f"{place}: there is no pair {name!r:.80}: {nearest(str(name), names)} Or write [target, draft].")


def _methods(table: _Table) -> tuple[Method, ...]:
    value = table.data.get("decoders")
    if not isinstance(value, list) or not value:
        raise InputError(f"{table.place}: `decoders` must be a list of names, or of tables with a name and settings.")
    found: list[Method] = []
    for each in value:
        name, grid = (
            (each, {}) if isinstance(each, str) else (each.get("name"), each) if isinstance(each, dict) else (each, {})
        )
        if name == "all" and grid == {}:
            found += [method() for method in catalog.values()]
            continue
        if not isinstance(name, str) or name not in catalog:
            raise InputError(f"{table.place}: there is no decoder {name!r:.80}: {nearest(str(name), catalog)}")
        found += _grid(table, name, {key: v for key, v in grid.items() if key != "name"})
    return tuple(dict.fromkeys(found))


def _grid(table: _Table, name: str, grid: Mapping[str, Any]) -> list[Method]:
    """A decoder with every combination of its settings; a list is a grid, but for a setting that is itself a list a list of lists is."""
    tuples = {f.name for f in dataclasses.fields(catalog[name]) if isinstance(f.default, tuple)}
    choices = []
    for key, value in grid.items():
        is_grid = isinstance(value, list) and (key not in tuples or (value and isinstance(value[0], list)))
        each = value if is_grid else [value]
        choices.append([(key, tuple(v) if isinstance(v, list) else v) for v in each])
    try:
        return [catalog[name](**dict(values)) for values in itertools.product(*choices)]
    except InputError as error:
        raise InputError(f"{table.place}: {error}") from None


def _of_part(table: _Table, names: Sequence[str]) -> str:
    part = table.text("part", names[0])
    if part not in names:
        raise InputError(f"{table.place}: there is no part {part!r:.80}: {nearest(part, names)}")
    return part


def _drawing(table: _Table, parts: Sequence[str]) -> Drawing:
    table.refuse_others("kind", "part", "x", "y", "title")
    kind = table.text("kind")
    if kind not in KINDS:
        raise table.fault("kind", " or ".join(KINDS))
    x, y = table.text("x", ""), table.texts("y")
    if (kind != "heat") != bool(x and y):
        raise InputError(
            f"{table.place}: a {kind} {'has neither `x` nor `y`' if kind == 'heat' else 'needs `x` and `y`'}."
        )
    for name in (*y, *([x] if kind == "front" else [])):
        _figure(table, name)
    return Drawing(kind, _of_part(table, parts), x, y, table.text("title", ""))


def _figure(table: _Table, name: str) -> str:
    if name not in FIGURES:
        raise InputError(f"{table.place}: there is no figure {name!r:.80}: {nearest(name, FIGURES)}")
    return name


def _ordering(table: _Table, names: Sequence[str]) -> Ordering:
    table.refuse_others("says", "source", "part", "figure", "less", "than")
    part = _of_part(table, names)
    _figure(table, table.text("figure"))
    return Ordering(
        table.text("says"), table.text("source"), part, *(table.text(key) for key in ("figure", "less", "than"))
    )


def _printed(table: _Table) -> Printed:
    table.refuse_others("source", "pair", "prompts", "device", "columns", "rows")
    rows = table.data.get("rows")
    columns = tuple(_figure(table, name) for name in table.texts("columns"))
    if not isinstance(rows, dict) or not rows:
        raise InputError(f"{table.place}: `rows` must be a table of labels with their figures.")
    found = {}
    for label, values in rows.items():
        if not isinstance(values, list) or len(values) != len(columns):
            raise InputError(f"{table.place}: row {label!r:.80} must have {len(columns)} figures.")
        if not all(v == "" or type(v) in (int, float) for v in values):
            raise InputError(f'{table.place}: row {label!r:.80} must have numbers, or "" for what was not printed.')
        found[label] = tuple(None if v == "" else v for v in values)
    source, pair, prompts, device = (table.text(key, "") for key in ("source", "pair", "prompts", "device"))
    return Printed(source, pair, prompts, device, columns, found)
