"""`python -m workbench profile`, as a user calls it."""

import json
import os
import signal

import pytest

from tests.workbench.engines.served import a_json, served
from tests.workbench.profiles.test_gain import streaming
from tests.workbench.profiles.test_profile import GOLDEN
from workbench.__main__ import main
from workbench.profiles.costs import Steps

STEPS = Steps("flat", {1: 1.0, 2: 1.0, 4: 1.0, 8: 2.0})


@pytest.fixture
def golden(tmp_path):
    path = tmp_path / "qwen.yaml"
    path.write_text(GOLDEN, encoding="utf-8")
    return str(path)


@pytest.fixture
def steps(tmp_path):
    path = tmp_path / "costs.json"
    path.write_text(STEPS.dumps(), encoding="utf-8")
    return str(path)


def test_a_golden_curve_becomes_a_profile_and_a_config_of_vllm(golden, tmp_path, capsys):
    out = tmp_path / "profile.json"
    assert main(["profile", "export", golden, "-o", str(out)]) == 0
    assert json.loads(out.read_text())["target"] == "qwen"
    on = ["--category", "coding, thinking_on"]
    capsys.readouterr()
    assert main(["profile", "export", str(out), "--as", "vllm", "--draft-length", "2", *on]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "num_speculative_tokens": 2,
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_length": 2.73,
    }
    assert main(["profile", "export", str(out), "--as", "inferencex", *on]) == 0
    assert capsys.readouterr().out.endswith("qwen:\n  1: 1.93\n  2: 2.73\n")


def test_the_gain_is_one_command_and_says_what_is_not_counted(golden, steps, capsys):
    """It said "at most", but costs between measured ones are overestimated."""
    on = ["--category", "coding, thinking_on"]
    assert main(["profile", "gain", golden, "--costs", steps, "--loads", "1", "4", *on]) == 0
    said = capsys.readouterr().out
    assert "x, drafts free" in said
    assert "the gains are upper bounds where drafting costs anything" in " ".join(said.split())
    assert "the gain is larger" in said
    assert "at most" not in said
    assert "2.73" in said
    assert "[[1, 3, 2], [4, 4, 0]]" in said
    told = ["--loads", "1", "--drafting", "0.5"]
    assert main(["profile", "gain", golden, "--costs", steps, *on, *told]) == 0
    said = capsys.readouterr().out
    assert "drafts free" not in said
    assert "takes 0.5" in said or "cost 0.5" in said


def test_a_device_is_described_by_figures(golden, tmp_path, capsys):
    figures = ["--bandwidth", "1000", "--tflops", "100", "--parameters", "8"]
    out = tmp_path / "made.json"
    assert main(["profile", "gain", golden, *figures, "--save", str(out)]) == 0
    assert "by a model without caches" in capsys.readouterr().out.replace("\n", " ")
    assert json.loads(out.read_text())["format"] == "decoding-workbench costs"


def test_saved_costs_of_large_loads_are_read_again(tmp_path, capsys):
    """`--save` wrote 16,384 requests at once, and `--costs` took up to 4,096."""
    config, out = tmp_path / "vllm.json", tmp_path / "made.json"
    config.write_text(
        '{"num_speculative_tokens": 8, "rejection_sample_method": "synthetic", '
        '"synthetic_acceptance_length": 3}'
    )
    figures = ["--bandwidth", "1000", "--tflops", "100", "--parameters", "8", "--save", str(out)]
    asked = ["profile", "gain", str(config), "--loads", "1024"]
    assert main([*asked, *figures]) == 0
    said = capsys.readouterr().out
    assert main([*asked, "--costs", str(out)]) == 0
    assert capsys.readouterr().out == said


@pytest.mark.parametrize(
    ("request_number", "dies", "said"),
    [
        (1, True, ("", "")),
        (1, False, ("", "Stopped after 1 request at once; no costs were saved.\n")),
        (3, False, ("x, drafts free", "Stopped after 2 requests at once; no costs were saved.\n")),
    ],
    ids=["before anything is measured", "before a gain is known", "with a gain"],
)
def test_an_interrupt_shows_what_there_is_and_saves_nothing(
    golden, tmp_path, capsys, request_number, dies, said
):
    """It saved the costs of a part, told a wrong reason for what was missing, and ended in 0."""
    usual, seen = streaming(0.002), []

    def answers(call):
        if call.path == "/v1/completions":
            seen.append(call)
            if len(seen) == request_number:
                os.kill(os.getpid(), signal.SIGINT)
                if dies:
                    return a_json({"error": "stopped"}, 500)
        return usual(call)

    out = tmp_path / "costs.json"
    flags = ["--category", "coding, thinking_on", "--loads", "1", "--save", str(out)]
    with served(answers) as server:
        assert main(["profile", "gain", golden, "--server", server.url, *flags]) == 130
    found = capsys.readouterr()
    assert said[0] in found.out
    assert bool(said[0]) == bool(found.out)
    assert found.err.endswith(said[1])
    assert "too few" not in found.err
    assert not out.exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "in one way"),
        (["--costs", "none.json", "--bandwidth", "1"], "in one way"),
        (["--costs", "none.json"], "cannot be read"),
        (["--bandwidth", "1"], "add --tflops and --parameters"),
        (["--bandwidth", "fast", "--tflops", "1", "--parameters", "1"], "--bandwidth must be"),
        (["--bandwidth", "nan", "--tflops", "1", "--parameters", "1"], "--bandwidth must be"),
        (["--costs", "COSTS", "--loads", "0"], "--loads must be"),
        (["--costs", "COSTS", "--loads", "some"], "--loads must be"),
        (["--costs", "COSTS", "--loads", "8"], "known up to 8 requests"),
        (["--costs", "COSTS", "--drafting", "-1"], "--drafting must be"),
        (["--costs", "COSTS", "--method", "x"], "No curve fits"),
        (["--server", "http://127.0.0.1:9", "--loads", "1"], "cannot be reached"),
        (["--server", "http://127.0.0.1:9", "--save", "none/x.json"], "no folder"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(golden, steps, flags, says, capsys):
    named = [steps if flag == "COSTS" else flag for flag in flags]
    assert main(["profile", "gain", golden, *named]) == 2
    found = capsys.readouterr()
    assert says in found.err
    assert found.err.count("\n") == 1
    assert found.out == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing-here"], "no file, run or experiment"),
        (["GOLDEN", "--as", "vllm"], "Several curves fit"),
        (["GOLDEN", "--as", "vllm", "--category", "coding, thinking_on"], "name it with"),
        (
            ["GOLDEN", "--as", "vllm", "--category", "coding, thinking_on", "--draft-length", "9"],
            "has no draft length 9; it has 1, 2",
        ),
        (["GOLDEN", "-o", "none/x.json"], "no folder"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_a_sentence(golden, words, says, capsys):
    assert main(["profile", "export", *(golden if w == "GOLDEN" else w for w in words)]) == 2
    assert says in capsys.readouterr().err
