"""Reads plans.

Every wrong key, type or value gives one sentence that names the file, the place and the key.
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path

from decoders import InputError
from decoders.errors import quoted
from decoders.settings import nearest
from workbench.experiments.plan import Drawing, Ordering, Plan, Printed
from workbench.experiments.plan_part import Keys, part
from workbench.show.quantities import FIGURES
from workbench.studies.gone import GONE

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
