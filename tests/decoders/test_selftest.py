"""The self-test names the parts that ran, finds faults, and has an exit code for them."""

import pytest
import torch

from decoders import selftest


@pytest.mark.slow
def test_passes(capsys):
    assert selftest.run("passes")
    assert "the same tokens" in capsys.readouterr().out


def test_a_whole_model_in_each_number_type(capsys):
    assert selftest.run("whole")
    shown = capsys.readouterr().out
    assert all(
        f"{name}: prompts, chains and trees, error" in shown
        for name in ("float32", "float16", "bfloat16")
    )


@pytest.mark.slow
def test_a_section_that_crashes_fails_alone(monkeypatch, capfd):
    """An illegal address on a GPU ends the process that it happens in."""
    sections = {
        "draws": selftest.SECTIONS["draws"],
        "nothing like it": selftest.SECTIONS["machine"],
    }
    monkeypatch.setattr(selftest, "SECTIONS", sections)
    assert not selftest.run_all()
    out = capfd.readouterr().out
    assert torch.cuda.is_available() or "needs a GPU: left out." in out
    assert "Something is wrong: nothing like it." in out
