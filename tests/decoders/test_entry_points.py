"""Decoders of other packages join the catalog by entry points; a broken one is named in one warning and the rest works."""

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
    """What a program prints that runs beside the strangers' package."""
    folder = tmp_path_factory.mktemp("others")
    strangers.install(folder)
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


@pytest.mark.parametrize("name", strangers.REASONS)
def test_a_broken_one_is_named_once_with_its_reason(name, lines):
    """One that claims a law which nobody knows once broke the whole page, and one that exits while it is imported the program."""
    assert [line for line in lines if f"'{name}' of" in line] == [strangers.warning(name)]
