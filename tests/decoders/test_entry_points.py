"""Decoders of other packages join the catalog by entry points; a broken one is named in one warning and the rest works."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OTHERS = """
from dataclasses import dataclass
from decoders import Method, catalog
from decoders.methods.autoregressive import Multinomial
from decoders.settings import setting


@dataclass(frozen=True)
class Mine(Multinomial):
    name = "mine"
    summary = "Somebody else's."
    strength: float = setting(0.5, "how strongly", low=0.0, high=1.0)


@dataclass(frozen=True)
class Double(Multinomial):
    name = "greedy"


@dataclass(frozen=True)
class Silent(Method):
    name = "silent"


nothing = 3
"""
ENTRIES = """[decoders.methods]
mine = others:Mine
double = others:Double
silent = others:Silent
nothing = others:nothing
missing = others:missing
broken = no_such_module:Thing
"""
SHOW = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import decoders
    from decoders.__main__ import settings, table
    from workbench.studies import links
    from workbench.studies.settings import Settings
    print(list(decoders.catalog)[-2:])
    print(settings("mine"))
    print("`mine` | Somebody else's." in table())
    print(Settings.from_json({"decoders": ["mine"], "mine": {"strength": 0.25}}).methods[0].strength)
    print(links.from_query({"prompt": "x", "decoders": "mine", "mine.strength": "0.75"}).data["settings"]["mine"])
for warning in caught:
    if "is left out" in str(warning.message):
        print(warning.message)
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> list[str]:
    """What a program prints that runs beside a package with six entry points, one of them whole."""
    folder = tmp_path_factory.mktemp("others")
    (folder / "others.py").write_text(OTHERS)
    (folder / "others-1.0.dist-info").mkdir()
    (folder / "others-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (folder / "others-1.0.dist-info" / "entry_points.txt").write_text(ENTRIES)
    program = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(folder)!r}]\n{SHOW}"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_decoder_of_another_package_is_everywhere_with_its_settings(lines):
    assert lines[:5] == [
        "['block', 'mine']",
        "strength = 0.5: how strongly (0.0 to 1.0)",
        "True",
        "0.25",
        "{'strength': 0.75}",
    ]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("double", "there is a decoder 'greedy' already."),
        ("silent", "Silent does not say its law, paper, section, summary."),
        ("nothing", "3 is not a dataclass that inherits from decoders.Method."),
        ("missing", "AttributeError: module 'others' has no attribute 'missing'"),
        ("broken", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_a_broken_one_is_named_once_with_its_reason(name, why, lines):
    assert [line for line in lines if f"'{name}'" in line and "left out" in line] == [
        f"The decoder '{name}' of others is left out: {why}"
    ]
