"""The files that come with the project: beside the packages in a repository checkout, inside of them when they are installed."""

from pathlib import Path


def assets(package: str | Path = __file__) -> Path:
    """The folder of the files that a package needs at run time; `package` is a file right inside of it, by default of this one."""
    inside = Path(package).resolve().parent / "_assets"
    return inside if inside.is_dir() else inside.parents[1] / "assets"
