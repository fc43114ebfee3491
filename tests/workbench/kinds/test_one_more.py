"""One more kind of study, made up in this file: it can do all that other kinds can."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from decoders.settings import check, setting
from tests.workbench.page.conftest import a_host
from tests.workbench.page.visitor import Visitor
from workbench.kinds.registry import KINDS, StudyKind
from workbench.page.frame import StudyTab
from workbench.page.layout import build
from workbench.runs.record import Run
from workbench.show.view import View
from workbench.studies.prompts import Prompt, checked
from workbench.studies.settings import Settings
from workbench.studies.study import Job, Study
from workbench.terminal import flags, show

START = {"decoders": ["greedy", "speculative"], "timings": 1}


@dataclass(frozen=True)
class Echo(Study):
    """A prompt that is decoded several times over."""

    kind: ClassVar[str] = "echo"
    usual: ClassVar[Mapping[str, Any]] = {"timings": 1}
    named: ClassVar[str] = "prompt"

    prompt: str
    settings: Settings
    times: int = setting(2, "how often the prompt is decoded", low=1, high=9)

    def __post_init__(self) -> None:
        checked(self.prompt)
        for field in self.own():
            check("echo", field, getattr(self, field.name))

    @property
    def title(self) -> str:
        return self.prompt

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (Prompt(self.prompt, "The prompt"),) * self.times

    def jobs(self) -> list[Job]:
        return [Job(method, 0, self.settings.seed) for method in self.settings.methods]

    def to_json(self) -> dict[str, Any]:
        return {"prompt": self.prompt, "settings": self.flat_settings}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Echo":
        settings, own = cls.split(data)
        return cls(data.get("prompt"), settings, **own)


class EchoTab(StudyTab):
    study = Echo
    id, title, prefix = "echo", "Echoes", "echo-"
    opening: ClassVar[Mapping[str, Any]] = {"prompt": "Once", "settings": START}
    linked: ClassVar[Mapping[str, Any]] = {"settings": START}
    shown: ClassVar[Mapping[str, Any]] = START


def register(commands: Any) -> None:
    command = flags.command(commands, "echo", "decode a prompt again and again", "Echoes.", "")
    command.set_defaults(command=run)
    flags.add_prompt(command)
    flags.add(command, START, Echo)


def run(args: Any) -> int:
    echo = Echo(flags.prompt(args), flags.settings(args, START), **flags.own(args, Echo))
    return show.run(echo, args)


TAB, VIEW = EchoTab, View("Echoes")
ASKED = "kind=echo&prompt=ab<b>&times=3&max_new_tokens=5&temperature=0"


@pytest.fixture
def known(monkeypatch) -> None:
    here = sys.modules[__name__]
    monkeypatch.setitem(KINDS, "echo", StudyKind("echo", "Echo", module=here, form=here))


@pytest.fixture
def page(known, pair, tmp_path):
    host = a_host(pair, tmp_path)
    return host, build(host)


def kept(host) -> Run:
    (listed,) = host.store.list(kind="echo")
    return host.store.get(listed.id)


def test_it_is_a_tab_is_linked_run_stored_listed_and_opened_again(page):
    host, blocks = page
    visitor = Visitor(blocks, ASKED)
    assert visitor.value("echo-prompt") == "ab<b>"
    assert "times=3" in visitor.value("echo-settings-link")
    visitor.press("echo-run")
    assert visitor.breakdowns == []
    assert "Done" in visitor.value("echo-progress")
    found = kept(host)
    assert [len(result.samples) for result in found.results] == [3, 3]

    visitor.open("Runs")
    assert visitor.value("past-runs")["rows"][0]["kind"] == "echo"
    again = Visitor(blocks, f"run={found.id}")
    assert again.value("echo-prompt") == "ab<b>"
    assert again.value("echo-figures") == visitor.value("echo-figures")
    assert "Speculative" in again.value("echo-figures")


def test_bad_input_is_said_at_its_field(page):
    visitor = Visitor(page[1], ASKED)
    visitor.put("echo-prompt", " ")
    visitor.press("echo-run")
    assert visitor.message("echo-prompt") == "The prompt is empty; write a few words."
    assert page[0].store.list(kind="echo") == []


def test_it_is_stopped(page):
    host, blocks = page
    visitor = Visitor(blocks, ASKED.replace("max_new_tokens=5", "max_new_tokens=500"))
    events = visitor.firing("echo-run", "click")
    for _ in events:
        if "token" in str(visitor.value("echo-progress")):
            visitor.press("echo-stop")
    assert visitor.breakdowns == []
    assert "Stopped" in visitor.value("echo-progress")
    assert kept(host).cancelled


def test_it_runs_in_the_terminal_and_is_exported_and_imported(known, call, store, tmp_path):
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "csv", "html")}
    named = [x for kind, path in files.items() for x in (f"--{kind}", str(path))]
    status, out, _ = call("echo", "Once", "--times", "3", "--max-new-tokens", "4", *named)
    assert (status, "speculative" in out.lower()) == (0, True)
    (listed,) = store.list(kind="echo")
    assert "<h1>Echoes: Once</h1>" in files["html"].read_text()
    assert files["csv"].read_text().count("\n") == 3
    assert call("runs", "list", "--kind", "echo")[1].count("echo") == 1
    store.delete(listed.id)
    assert call("runs", "import", str(files["json"]))[0] == 0
    assert [run.id for run in store.list(kind="echo")] == [listed.id]
    assert Echo.from_json(store.get(listed.id).study).times == 3
    says = "echo: times must be a whole number from 1 to 9, not 10.\n"
    assert call("echo", "Once", "--times", "10") == (2, "", says)
