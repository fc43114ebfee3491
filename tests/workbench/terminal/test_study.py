"""Past runs in a terminal, and a run that cannot be kept."""

import pytest

from workbench.runs.record import Run
from workbench.terminal import flags

COMMANDS = [
    "compare Once --decoders greedy --max-new-tokens 4",
    "batch --decoders lookup --count 2 --sizes 1 --max-new-tokens 4",
]


@pytest.fixture(params=COMMANDS, ids=["compare", "batch"])
def command(request) -> list[str]:
    return request.param.split()


def test_a_run_that_cannot_be_kept_is_shown_written_and_said(call, monkeypatch, tmp_path, command):
    """A full disk or a protected folder ended in a traceback, and the results were lost."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WORKBENCH_DATA", str(tmp_path / "file" / "data"))
    status, out, err = call(*command, "--json", str(tmp_path / "out.json"))
    assert status == 0
    assert "tokens/s" in out
    assert "kept as run" not in out
    assert "The run was not kept: Runs cannot be kept in" in err
    assert err.strip().count("\n") == 0
    assert Run.from_json((tmp_path / "out.json").read_bytes()).results


def test_a_file_that_cannot_be_written_after_all_is_one_sentence_and_the_run_is_kept(call, store):
    status, out, err = call(*COMMANDS[0].split(), "--json", "/dev/full")
    assert status == 2
    assert "kept as run" in out
    assert "full cannot be written: No space left on device" in err
    assert len(store.list()) == 1


def test_a_file_is_written_whatever_its_text(tmp_path):
    """Half a character in a text emptied the file that was there, and the command broke down."""
    path = tmp_path / "report.md"
    path.write_text("before")
    flags.write(path, "é \ud800")
    assert path.read_text(encoding="utf-8") == "é \\ud800"


@pytest.fixture(params=["comparison", "batch"])
def any_run(request, run, batch_run) -> Run:
    return run if request.param == "comparison" else batch_run


def test_past_runs_are_listed_shown_compared_exported_imported_and_deleted(
    call, store, any_run, tmp_path
):
    store.save(any_run)
    status, out, _ = call("runs")
    assert (status, any_run.id in out, any_run.kind in out) == (0, True, True)
    assert f"temperature {any_run.settings['temperature']:g}, seed 0" in out
    _, out, _ = call("runs", "show", any_run.id)
    assert "speculative" in out
    assert "tokens/s" in out
    assert "\x1b[31m" not in out
    assert "tokens/s" in call("runs", "compare", any_run.id, any_run.id)[1]
    for kind in ("json", "csv", "html"):
        assert call("runs", "export", any_run.id, str(tmp_path / f"run.{kind}"))[0] == 0
    assert call("runs", "delete", any_run.id)[0] == 0
    assert call("runs")[1].strip() == "There are no runs yet."
    kept = f"kept as run {any_run.id}\n"
    assert call("runs", "import", str(tmp_path / "run.json")) == (0, kept, "")
    assert store.get(any_run.id) == any_run
