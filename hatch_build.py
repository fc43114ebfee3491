"""Metadata of the package that stands in files with other readers.

A Space reads requirements.txt and the README's front matter."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class FromFiles(MetadataHookInterface):
    """Dependencies, the extra `dev` and the README, each from its file.

    Dependencies are from requirements.txt, the extra `dev` from requirements-dev.txt, and the
    README is without its front matter; the other extras are in pyproject.toml."""

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        metadata["dependencies"] = requirements(root / "requirements.txt")
        metadata["optional-dependencies"] = {
            **self.config["extras"],
            "dev": requirements(root / "requirements-dev.txt"),
        }
        text = (root / "README.md").read_text(encoding="utf-8")
        front_matter = re.match(r"---\n.*?\n---\n+", text, re.S)
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": text[front_matter.end() if front_matter else 0 :],
        }


def requirements(file: Path) -> list[str]:
    """The requirements of a file without its comments and the files that it includes (-r)."""
    lines = (
        re.sub(r"(^|\s+)#.*", "", line).strip()
        for line in file.read_text(encoding="utf-8").splitlines()
    )
    return [line for line in lines if line and not line.startswith("-")]
