"""The self-test names the parts that ran, finds faults, and has an exit code for them."""

import pytest
import torch

from decoders import selftest
from decoders.engine.attention import interface as attention


def test_an_unknown_section(capsys):
    assert selftest.main(["engines"]) == 2
    assert "machine, ways" in capsys.readouterr().err


@pytest.mark.slow
def test_passes(capsys):
    assert selftest.run("passes")
    assert "the same tokens" in capsys.readouterr().out


def test_passes_that_are_no_programs_are_found(monkeypatch, capsys):
    """On a GPU, which had no program, plain passes were compared with themselves."""
    monkeypatch.setattr(selftest, "catalog", ["greedy"])
    monkeypatch.setattr(selftest, "PASSES", ("plain", "plain"))
    assert not selftest.run("passes")
    says = "WRONG: the passes are no programs, they run as packed passes, module by module."
    assert says in capsys.readouterr().out


def test_a_whole_model_in_each_number_type(capsys):
    assert selftest.run("whole")
    shown = capsys.readouterr().out
    assert all(
        f"{name}: prompts, chains and trees, error" in shown
        for name in ("float32", "float16", "bfloat16")
    )


def test_a_wrong_whole_model_is_found(monkeypatch, capsys):
    """By attention that takes half of every key in bfloat16."""
    right = attention.attend_one_by_one

    def wrong(q, keys, *others):
        return right(q, keys * (0.5 if q.dtype == torch.bfloat16 else 1), *others)

    monkeypatch.setattr(attention, "attend_one_by_one", wrong)
    monkeypatch.setattr(attention, "choose_way", lambda *_: wrong)
    monkeypatch.setattr(attention, "takes_kernels", lambda *_: True)
    assert not selftest.run("whole")
    assert "WRONG: a whole model is wrong in torch.bfloat16" in capsys.readouterr().out


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
