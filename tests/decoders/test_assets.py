"""Where the files that come with a package are found."""

from pathlib import Path

from decoders.process import assets
from workbench.assets import assets as of_the_workbench

ROOT = Path(__file__).parents[2]


def test_in_a_checkout_they_lie_beside_the_packages():
    assert assets() == of_the_workbench() == ROOT / "assets"


def test_in_a_wheel_they_lie_inside_of_each(tmp_path):
    (tmp_path / "assets").mkdir()  # a stranger's
    (tmp_path / "decoders" / "_assets").mkdir(parents=True)
    assert assets(tmp_path / "decoders" / "assets.py") == tmp_path / "decoders" / "_assets"
