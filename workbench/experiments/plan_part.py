"""A part of a plan, and the keys that the tables of a plan are read from, each with its type.

Everything that needs no model is checked here. Every fault gives one sentence that names the place
and the key.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decoders import InputError, Method, catalog
from decoders.errors import quoted
from decoders.settings import nearest
from workbench.experiments.plan import EMBEDDED_NAME, Part, settings
from workbench.models.presets import EMBEDDED, PAIRS, PairChoice
from workbench.models.tuned import tuned
from workbench.studies.schemes import LARGEST_BATCH, SCHEMES

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
