"""Files that come with the project: beside the packages in a checkout, inside an installed one."""

from pathlib import Path


def assets(package: str | Path = __file__) -> Path:
    """The folder of the files that a package needs at run time.

    Args:
        package: a file directly inside the package; by default this one
    """
    inside = Path(package).resolve().parent / "_assets"
    return inside if inside.is_dir() else inside.parents[1] / "assets"
