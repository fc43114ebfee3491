"""A package that somebody might install beside ours: one decoder is whole, the others broken.

Each is broken in another way."""

from pathlib import Path

MODULE = """
import sys
from dataclasses import dataclass
from decoders import Method, catalog
from decoders.methods.baselines import Multinomial
from decoders.settings import setting


@dataclass(frozen=True)
class Mine(Multinomial):
    name = "mine"
    title = "Mine, all mine"
    summary = "Somebody else's."
    strength: float = setting(0.5, "how strongly", low=0.0, high=1.0)


@dataclass(frozen=True)
class Double(Multinomial):
    name = "greedy"


@dataclass(frozen=True)
class Silent(Method):
    name = "silent"


@dataclass(frozen=True)
class Lawless(Multinomial):
    name = "lawless"
    law = "my own"


@dataclass(frozen=True)
class Bare(Multinomial):
    name = "bare"
    strength: float = 0.5


nothing = 3


def __getattr__(name):
    if name == "Quits":
        sys.exit(1)
    raise AttributeError(f"module 'others' has no attribute {name!r}")
"""
ENTRIES = {
    "mine": "others:Mine",
    "double": "others:Double",
    "silent": "others:Silent",
    "lawless": "others:Lawless",
    "bare": "others:Bare",
    "nothing": "others:nothing",
    "missing": "others:missing",
    "quits": "others:Quits",
    "broken": "no_such_module:Thing",
}
# Why each broken one is left out.
REASONS = {
    "double": "there is a decoder 'greedy' already.",
    "silent": "Silent does not say its law, paper, section, summary.",
    "lawless": (
        "its law is 'my own', and a law is one of 'target', 'beam sampling', 'beam sampling per "
        "layer', 'beam search', 'cascade', 'ensemble' or None."
    ),
    "bare": "its strength is not made with decoders.settings.setting, as every setting must be.",
    "nothing": "3 is not a dataclass that inherits from decoders.Method.",
    "missing": "AttributeError: module 'others' has no attribute 'missing'",
    "quits": "SystemExit: 1",
    "broken": "ModuleNotFoundError: No module named 'no_such_module'",
}


def install(folder: Path) -> None:
    """Put the package into a folder from which Python imports, as pip would."""
    (folder / "others.py").write_text(MODULE)
    about = folder / "others-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    entries = "".join(f"{name} = {place}\n" for name, place in ENTRIES.items())
    (about / "entry_points.txt").write_text(f"[decoders.methods]\n{entries}")


def warning(name: str) -> str:
    return f"The decoder '{name}' of others is left out: {REASONS[name]}"
