"""The arrows of DESIGN.md, read from the imports: they only run down."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [f for folder in ("decoders", "workbench") for f in sorted((ROOT / folder).rglob("*.py"))]

# What the rooms of `decoders` may import of each other, from the door down; packages stand for all their files.
LEAVES = {"errors", "shapes", "tree", "warp", "sampling", "theory", "trace", "request"}
MAY = {
    "drafts": LEAVES | {"drafts"},
    "rules": LEAVES | {"drafts", "rules"},
    "beams": {"request", "shapes", "trace", "warp"},
    "methods": LEAVES | {"beams", "drafts", "rules", "methods", "settings", "inputs"},
    "inputs": {"errors", "shapes", "warp", "settings"},
    "catalog": {"methods", "settings", "errors"},
    "settings": LEAVES,
    "tree": {"shapes"},
    "warp": {"errors", "shapes"},
    "sampling": {"shapes"},
    "trace": {"shapes"},
    "theory": {"sampling", "shapes"},
    "request": {"sampling", "shapes", "trace", "tree", "warp", "errors"},
}
MAY_KNOW_THE_ENGINE = {
    "engine",
    "loop",
    "task",
    "generate",
    "__init__",
}  # `task` reads the pair, `generate` builds what the loop drives
INTERFACE = {"gradio", "plotly", "pandas", "sqlite3"}


def imported(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute here"
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def room(file: Path) -> str:
    parts = file.relative_to(ROOT / "decoders").with_suffix("").parts
    return parts[0]


@pytest.mark.parametrize(
    "file", [f for f in FILES if f.is_relative_to(ROOT / "decoders")], ids=lambda f: str(f.relative_to(ROOT))
)
def test_decoders_imports_run_down(file):
    names = imported(file)
    tops = {n.split(".")[0] for n in names}
    assert not tops & (INTERFACE | {"workbench", "app"})
    rooms = {
        p[1]
        for n in names
        if (p := n.split("."))[0] == "decoders" and len(p) > 1 and (ROOT / "decoders" / p[1]).exists()
    }
    rooms |= {
        p[1]
        for n in names
        if (p := n.split("."))[0] == "decoders" and len(p) > 1 and (ROOT / "decoders" / f"{p[1]}.py").exists()
    }
    if room(file) in MAY:
        assert rooms <= MAY[room(file)], f"{file} imports {rooms - MAY[room(file)]}"
    if room(file) not in MAY_KNOW_THE_ENGINE:
        assert "engine" not in rooms


@pytest.mark.parametrize(
    "file", [f for f in FILES if f.is_relative_to(ROOT / "workbench")], ids=lambda f: str(f.relative_to(ROOT))
)
def test_workbench_imports_run_down(file):
    """layout -> panels -> session -> {runs, charts, export, meter} -> decoders; nothing imports the door."""
    layer = {"layout": 1, "panels": 2, "session": 3, "runs": 4, "charts": 4, "export": 4, "meter": 4}
    here = layer.get(file.relative_to(ROOT / "workbench").with_suffix("").parts[0])
    for name in imported(file):
        parts = name.split(".")
        assert parts[0] != "app"
        if here and parts[0] == "workbench" and len(parts) > 1 and parts[1] in layer:
            assert layer[parts[1]] >= here, f"{file} imports {name}"
