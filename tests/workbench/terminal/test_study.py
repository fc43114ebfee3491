"""Shared by compare and batch: a run that cannot be kept is still shown and written."""

import pytest

from workbench.runs.record import Run
from workbench.runs.store import RunStore

COMMANDS = [
    ("compare", "Once", "--decoders", "greedy", "--max-new-tokens", "4"),
    ("batch", "--decoders", "lookup", "--count", "2", "--sizes", "1", "--max-new-tokens", "4"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
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


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_so_is_one_whose_keeping_fails_as_nobody_foresaw(call, monkeypatch, command):
    def save(self, run):
        raise RuntimeError("something else")

    monkeypatch.setattr(RunStore, "save", save)
    status, out, err = call(*command)
    assert status == 0
    assert "tokens/s" in out
    assert "The run was not kept: something else" in err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_a_file_that_cannot_be_written_after_all_is_one_sentence_and_the_run_is_kept(
    call, store, monkeypatch, tmp_path, command
):
    def write_bytes(self, *arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", write_bytes)
    status, out, err = call(*command, "--json", str(tmp_path / "out.json"))
    assert status == 2
    assert "kept as run" in out
    assert "out.json cannot be written: No space left on device" in err
    assert len(store.list()) == 1
