"""Imports that are allowed: one table for every file of `decoders` and `workbench`."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [
    f.relative_to(ROOT)
    for top in ("decoders", "workbench")
    for f in sorted((ROOT / top).rglob("*.py"))
]

# The rooms of `decoders`, each with those that it may import; its own files it may always import.
PLAIN = {"errors", "shapes"}
REQUEST = PLAIN | {"distribution", "reading", "request", "theory", "trace", "tree"}
CALLED = REQUEST | {"engine", "inputs", "penalties", "settings"}
DECODERS = {
    "errors": set(),
    "process": set(),
    "shapes": set(),
    "tree": PLAIN,
    "penalties": PLAIN,
    "devices": PLAIN,
    "inputs": PLAIN,
    "trace": PLAIN,
    "distribution": PLAIN | {"devices"},
    "theory": PLAIN | {"distribution"},
    "reading": PLAIN | {"devices", "distribution"},
    "request": REQUEST,
    "settings": REQUEST,
    "beams": REQUEST,
    "methods": REQUEST | {"beams", "inputs", "settings"},
    "testing": REQUEST | {"loop", "methods", "settings"},
    "judge": REQUEST | {"inputs", "methods", "testing"},
    "smollm2": PLAIN | {"process"},
    "engine": PLAIN
    | {"devices", "distribution", "inputs", "penalties", "process", "smollm2", "tree"},
    "loop": REQUEST | {"devices", "engine", "penalties", "settings"},
    "generate": CALLED | {"devices", "loop", "methods"},
    "training": PLAIN | {"devices", "engine", "generate", "inputs", "methods", "trace"},
    "divergence": CALLED | {"generate"},
    "integrations": CALLED | {"generate", "methods"},
    "__init__": CALLED
    | {"devices", "divergence", "generate", "integrations", "judge", "methods", "process"},
    "__main__": {"__init__", "errors", "methods", "settings"},
}
# The rooms of `workbench`: each may import all of `decoders` that its door or its plain files
# offer, and beyond that these. A kind's folder has the study with its look and its command, which
# the terminal loads without Gradio, and its form on the page.
BELOW = {"studies", "models", "runs", "measuring", "show", "theory", "experiments", "kinds"}
WORKBENCH = {
    "__init__": set(),
    "studies": {"__init__"},
    "models": set(),
    "runs": {"__init__", "studies"},
    "measuring": {"runs", "studies", "models", "engines"},
    "show": {"runs", "studies", "kinds"},
    "theory": {"runs", "show", "studies"},
    "engines": set(),
    "experiments": {"__init__", "studies", "models", "runs", "measuring", "show"},
    "kinds": {"studies", "runs"},
    "kinds.study": BELOW | {"terminal"},
    "kinds.form": BELOW | {"kinds.study", "page"},
    "page": BELOW | {"kinds.form"},
    "terminal": BELOW | {"engines", "kinds.study"},
    "components": {"kinds.study", "measuring", "page", "runs", "show", "studies"},
    "__main__": {"kinds", "page", "terminal"},
}
OFFERED = {
    "__init__", "devices", "distribution", "divergence", "errors", "inputs", "judge", "process",
    "settings", "smollm2", "testing", "trace", "training", "theory",
}  # fmt: skip
ROOMS = {
    **{
        f"decoders.{room}": {f"decoders.{other}" for other in may} for room, may in DECODERS.items()
    },
    **{
        f"workbench.{room}": {f"workbench.{other}" for other in may}
        | {f"decoders.{other}" for other in OFFERED}
        for room, may in WORKBENCH.items()
    },
}
SAID = {"protocols"}
# The rooms of the engine, each with those below it that it may import.
ENGINE: dict[str, set[str]] = {
    "__init__": set(),
    "protocols": set(),
    "kernels": set(),
    "recorder": set(),
    "weights": {"recorder", "kernels"},
    "fingerprint": {"kernels", "weights"},
    "attention": {"recorder"},
    "lowering": SAID | {"recorder", "fingerprint", "kernels", "weights", "attention", "pack"},
    "cache": {"weights"},
    "pack": {"attention", "cache"},
    "passes": SAID | {"attention", "cache", "pack", "lowering"},
    "graphs": SAID | {"recorder", "attention", "lowering", "pack"},
    "models": SAID
    | {"fingerprint", "weights", "attention", "cache", "pack", "passes", "graphs", "lowering"},
    "heads": SAID
    | {
        "attention",
        "cache",
        "fingerprint",
        "kernels",
        "lowering",
        "models",
        "pack",
        "passes",
        "weights",
    },
    "loading": SAID | {"recorder", "fingerprint", "weights", "cache", "models", "passes", "heads"},
}
# Libraries that only some rooms may import.
LIBRARIES = {
    "gradio": {"workbench.page", "workbench.kinds.form", "workbench.components"},
    "rich": {"workbench.terminal", "workbench.kinds.study"},
    "plotly": {"workbench.show", "workbench.theory", "workbench.experiments"},
    "sqlite3": {"workbench.runs", "workbench.experiments"},
    "ray": {"workbench.experiments"},
    "lm_eval": {"decoders.integrations"},
    "pydantic": {f"workbench.{room}" for room in ("engines", "runs", "experiments", "page")},
    "httpx": {"workbench.engines"},
    "spaces": {"workbench.measuring"},
    "pynvml": {"workbench.measuring"},
    **{name: set[str]() for name in ("pandas", "app", "tests", "tools", "training")},
}


def module(file: Path) -> str:
    """The name of a file's module; a package is its `__init__`."""
    return ".".join(file.with_suffix("").parts)


MODULES = {module(file) for file in FILES}


def room(name: str) -> str:
    """The room of a module: the file or folder right below the top. A file of a kind lies in the
    room of such files."""
    top, below, *inside = name.split(".")
    if below == "kinds" and len(inside) > 1:
        return f"{top}.kinds.{'study' if inside[-1] == '__init__' else 'form'}"
    return f"{top}.{below}"


def may_import(name: str, target: str) -> bool:
    """Whether the table lets a module import another."""
    here, there = room(name), room(target)
    if here == there == "decoders.engine":
        inside, other = (each.split(".")[2] for each in (name, target))
        return other in ENGINE.get(inside, set()) | {inside}
    return there in ROOMS[here] | {here}


def own(name: str, modules: Iterable[str]) -> str | None:
    """The module of this project that an imported name comes from."""
    while name:
        if name in modules:
            return name
        if f"{name}.__init__" in modules:
            return f"{name}.__init__"
        name = name.rpartition(".")[0]
    return None


def imported(source: str) -> Iterator[str]:
    """Every name that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def faults(file: Path, source: str) -> list[str]:
    """The imports of a file that the table forbids, and whether the file lies in no room."""
    here = room(module(file))
    if here not in ROOMS:
        return [f"{file} lies in no room"]
    found = []
    for name in imported(source):
        top = name.split(".")[0]
        if here not in LIBRARIES.get(top, {here}):
            found.append(f"{file} imports {top}")
        target = own(name, MODULES)
        if target is not None and not may_import(module(file), target):
            found.append(f"{file} imports {name}")
    return found


@pytest.mark.parametrize("file", FILES, ids=str)
def test_every_file_lies_in_a_room_and_imports_only_what_that_room_may(file):
    assert faults(file, (ROOT / file).read_text(encoding="utf-8")) == []


def test_every_room_of_the_table_is_there():
    assert {room(module(file)) for file in FILES} == set(ROOMS)
    assert {name.split(".")[2] for name in MODULES if room(name) == "decoders.engine"} == set(
        ENGINE
    )


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_files_import_each_other_in_a_circle():
    graph = {
        module(file): {
            target
            for name in imported((ROOT / file).read_text(encoding="utf-8"))
            if (target := own(name, MODULES)) not in (None, module(file))
        }
        for file in FILES
    }
    assert circle(graph) == []
    assert circle({**graph, "decoders.errors": {"decoders.loop"}}) != []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("workbench/studies/x.py", "from workbench.models import load"),
        ("workbench/kinds/batch/__init__.py", "import gradio as gr"),
        ("workbench/measuring/x.py", "def f():\n    from workbench.show import tables"),
        ("workbench/misc/x.py", "import json"),
        ("decoders/methods/x.py", "from decoders import InputError"),
        ("decoders/engine/attention/x.py", "from decoders.engine.graphs import Graphs"),
        ("decoders/trace.py", "import pandas"),
    ],
)
def test_an_arrow_that_is_not_in_the_table_is_found(file, source):
    assert len(faults(Path(file), source)) == 1
