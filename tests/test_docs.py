"""The documentation: every code block runs, every generated page is made, and it builds strictly without network."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from decoders import catalog
from workbench import __main__ as program

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    """The code of a page in one language, with the files that it includes."""
    found = re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)
    return [re.sub(r'--8<-- "(.*?)"', lambda match: (ROOT / match[1]).read_text("utf-8"), code) for code in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_python_block_runs(page, tmp_path, monkeypatch):
    """One after another in one namespace, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__reader__"}
    sys.modules.setdefault("__reader__", type(sys)("__reader__"))
    for code in blocks(page, "python"):
        exec(compile(code, f"{page.name}", "exec"), namespace)


def commands() -> list[str]:
    return [line for page in PAGES for code in blocks(page, "sh") for line in code.splitlines() if line.strip()]


@pytest.mark.parametrize("line", commands())
def test_every_command_runs_or_is_there(line, tmp_path, monkeypatch, capsys):
    """The workbench's commands are run; of `make` and `pip` it is tested that the target and the extra exist."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBENCH_DATA", str(tmp_path))
    first, *arguments = shlex.split(line)
    if first == "make":
        assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), re.M)
    elif first == "pip":
        extra = re.fullmatch(r"\.(?:\[(.*)\])?", arguments[1])
        known = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"]["custom"][
            "extras"
        ]
        assert arguments[0] == "install"
        assert extra[1] in (None, "dev", *known)
    elif "--help" in arguments:
        with pytest.raises(SystemExit) as end:
            program.main(arguments)
        assert end.value.code == 0
    else:
        assert first == "decoding-workbench"
        assert program.main(arguments) == 0
    capsys.readouterr()


def test_it_builds_strictly_and_without_network(tmp_path):
    """Every request is refused by a proxy that is not there; a warning fails the build."""
    nowhere = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, env={**os.environ, **nowhere})
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {file.stem for file in (tmp_path / "site" / "decoders").glob("*.html")}
    assert pages == {*catalog, "index"}
    for name in catalog:
        text = (tmp_path / "site" / "decoders" / f"{name}.html").read_text(encoding="utf-8")
        assert "<svg role=" in text
        assert "tokens" in text
    outside = re.findall(
        r'(?:src|href)="(https?://[^"]+\.(?:js|css|woff2?|png))"',
        "".join(p.read_text() for p in (tmp_path / "site").rglob("*.html")),
    )
    assert outside == []
