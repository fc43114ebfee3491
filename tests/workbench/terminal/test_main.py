import io
import json
import os
import signal

import pytest

from decoders import catalog
from workbench import __main__ as program
from workbench.runs.store import Run, RunStore


@pytest.fixture
def call(pair, monkeypatch, tmp_path, capsys):
    """Runs the program with the tiny pair in place of any other, its past runs in a folder of the test."""
    monkeypatch.setenv("WORKBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(program, "load", lambda choice: pair)

    def run(*arguments):
        status = program.main(list(arguments))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_a_comparison_prints_texts_and_figures_writes_files_and_is_kept(call, tmp_path):
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "csv", "html")}
    flags = [x for kind, path in files.items() for x in (f"--{kind}", str(path))]
    status, out, _ = call(
        "compare", "Once", "--decoders", "greedy", "mtad", "--max-new-tokens", "12", "--temperature", "0.5", "--seed", "3",
        "--set", "mtad.beams=3", "--set", "mtad.ratio=raw", "--repeats", "2", *flags,
    )  # fmt: skip
    assert status == 0
    run = Run.from_json(files["json"].read_bytes())
    assert run.settings["decoders"] == ["greedy", "mtad"]
    assert (
        run.settings["temperature"],
        run.settings["seed"],
        run.settings["mtad"]["beams"],
        run.settings["mtad"]["ratio"],
    ) == (0.5, 3, 3, "raw")
    assert [r.seed for r in run.results] == [3, 3, 4, 4]
    assert RunStore().get(run.id) == run
    assert run.id in out
    assert "tokens/s" in out
    assert files["csv"].read_text().count("\n") == 5
    assert files["html"].read_text().startswith("<!doctype html>")


def test_a_preset_is_the_ground_that_flags_change(call, tmp_path):
    path = tmp_path / "out.json"
    call(
        "compare",
        "Once",
        "--preset",
        "MTAD paper",
        "--decoders",
        "greedy",
        "--max-new-tokens",
        "4",
        "--top-k",
        "5",
        "--json",
        str(path),
        "--no-save",
    )
    settings = json.loads(path.read_text())["settings"]
    assert (settings["top_k"], settings["top_p"], settings["decoders"]) == (5, 0.9, ["greedy"])
    assert RunStore().list() == []


def test_the_prompt_may_come_from_standard_input(call, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.StringIO("a long\nprompt"))
    path = tmp_path / "out.json"
    call("compare", "-", "--decoders", "greedy", "--max-new-tokens", "2", "--json", str(path))
    assert json.loads(path.read_text())["prompt"] == "a long\nprompt"


def test_past_runs_are_listed_shown_compared_exported_imported_and_deleted(call, run, tmp_path):
    RunStore().save(run)
    status, out, _ = call("runs")
    assert (status, run.id in out) == (0, True)
    status, out, _ = call("runs", "show", run.id)
    assert "speculative" in out
    assert "\x1b[31m" not in out
    status, out, _ = call("runs", "compare", run.id, run.id)
    assert "perplexity" in out
    path = tmp_path / "run.json"
    assert call("runs", "export", run.id, str(path))[0] == 0
    assert call("runs", "delete", run.id)[0] == 0
    assert call("runs")[1].strip() == "There are no runs yet."
    assert call("runs", "import", str(path))[0] == 0
    assert RunStore().get(run.id) == run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("compare x --decoders gredy", "did you mean 'greedy'"),
        ("compare x --temperature warm", "temperature must be"),
        ("compare x --max-new-tokens 0", "max_new_tokens must be"),
        ("compare x --set mtad.beams=900", "beams must be"),
        ("compare x --set mtad.beam=3", "did you mean 'beams'"),
        ("compare x --set beams=3", "as in mtad.beams=8"),
        ("compare x --set dsbdd.beams=3", "did you mean 'dsbd'"),
        ("compare x --preset papers", "There is no preset"),
        ("compare x --models a b c", "a target and a draft"),
        ("compare x --json /no/such/folder/out.json", "There is no folder /no/such/folder"),
        ("compare x --chat-template", "no chat template"),
        ("runs show abc", "There is no run 'abc'"),
        ("runs delete abc", "There is no run 'abc'"),
        ("runs export abc out.pdf", "must end in .json, .csv, .html"),
        ("runs import /no/such/file", "cannot be read"),
        (f"runs import {__file__}", "This is not a run of the workbench"),
    ],
)
def test_bad_input_is_one_clear_sentence_and_status_2(call, arguments, message):
    status, out, err = call(*arguments.split())
    assert status == 2
    assert message in err
    assert err.strip().count("\n") == 0
    assert out == ""


def test_an_empty_prompt_is_refused(call):
    assert call("compare", "")[0] == 2


@pytest.mark.parametrize("arguments", [[], ["bogus"], ["compare"], ["runs", "burn"], ["compare", "x", "--colour"]])
def test_a_wrong_command_line_says_where_help_is(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        program.main(arguments)
    err = capsys.readouterr().err
    assert end.value.code == 2
    assert "--help" in err
    assert err.strip().count("\n") == 0


def test_help_names_every_decoder_and_gives_examples(capsys):
    with pytest.raises(SystemExit) as end:
        program.main(["compare", "--help"])
    out = capsys.readouterr().out
    assert end.value.code == 0
    assert all(name in out for name in catalog)
    assert "examples:" in out


def test_a_decoder_that_fails_gives_status_1_and_the_others_are_shown(call, monkeypatch):
    def decode(self, request):
        raise RuntimeError("broken on purpose")
        yield

    monkeypatch.setattr(catalog["mtad"], "decode", decode)
    status, out, _ = call("compare", "x", "--decoders", "greedy", "mtad", "--max-new-tokens", "4")
    assert status == 1
    assert "broken on purpose" in out
    assert "kept as run" in out


def test_an_interrupt_keeps_what_is_finished(call, monkeypatch):
    def decode(self, request):
        os.kill(os.getpid(), signal.SIGINT)
        yield from usual(self, request)

    usual = catalog["dsbd"].decode
    monkeypatch.setattr(catalog["dsbd"], "decode", decode)
    before = signal.getsignal(signal.SIGINT)
    status, _, _ = call("compare", "x", "--decoders", "greedy", "dsbd", "mtad", "--max-new-tokens", "8")
    assert status == 130
    (kept,) = RunStore().list()
    assert kept.decoders == ["greedy", "dsbd"]
    assert RunStore().get(kept.id).cancelled
    assert signal.getsignal(signal.SIGINT) is before
