"""Decoders of other packages join the catalog by entry points.

A broken one is named in one warning, and the rest works."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import strangers

ROOT = Path(__file__).parents[2]
SHOW = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import decoders
    from decoders.__main__ import settings, table
    from workbench.kinds import registry
    from workbench.studies.settings import Settings
    print(list(decoders.catalog)[-1])
    print(settings("mine"))
    print("`mine` | Somebody else's." in table())
    stored = {"decoders": ["mine"], "mine": {"strength": 0.25}}
    print(Settings.from_json(stored).methods[0].strength)
    query = {"prompt": "x", "decoders": "mine", "mine.strength": "0.75"}
    print(registry.from_query(query).data["settings"]["mine"])
for warning in caught:
    if "is left out" in str(warning.message):
        print(warning.message)
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> list[str]:
    """The output of a program beside the strangers' package."""
    folder = tmp_path_factory.mktemp("others")
    strangers.install(folder)
    program = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(folder)!r}]\n{SHOW}"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_decoder_of_another_package_is_everywhere_with_its_settings(lines):
    assert lines[:5] == [
        "mine", "strength = 0.5: how strongly (0.0 to 1.0)", "True", "0.25", "{'strength': 0.75}",
    ]  # fmt: skip


@pytest.mark.parametrize("name", strangers.REASONS)
def test_a_broken_one_is_named_once_with_its_reason(name, lines):
    """One with an unknown law once broke the whole page; one that exits on import, the program."""
    assert [line for line in lines if f"'{name}' of" in line] == [strangers.warning(name)]
