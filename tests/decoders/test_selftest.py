"""The self-test says what it ran, finds what is wrong, and tells it by its exit code."""

import subprocess
import sys

import torch

from decoders import selftest
from decoders.engine import attention


def test_a_section_of_its_own():
    done = subprocess.run(
        [sys.executable, "-m", "decoders.selftest", "draws"], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
    if not torch.cuda.is_available():
        assert "needs a GPU: left out." in done.stdout


def test_an_unknown_section(capsys):
    assert selftest.main(["engines"]) == 2
    assert "machine, ways" in capsys.readouterr().err


def test_passes(capsys):
    assert selftest.run("passes")
    assert "the same tokens" in capsys.readouterr().out


def test_a_wrong_way_is_found(monkeypatch, capsys):
    """Compared with float64, by a way that gives half of every value in float32."""
    right = attention.attend_one_by_one

    def wrong(q, *others):
        return right(q, *others) * (0.5 if q.dtype == torch.float32 else 1)

    monkeypatch.setattr(selftest, "device", lambda: torch.device("cpu"))
    monkeypatch.setattr(attention, "attend_one_by_one", wrong)
    assert not selftest.run("ways")
    assert "WRONG: one by one is wrong in torch.float32" in capsys.readouterr().out


def test_a_section_that_crashes_fails_alone(monkeypatch, capfd):
    """An illegal address on a GPU ends the process that it happens in."""
    sections = {"machine": selftest.SECTIONS["machine"], "nothing like it": selftest.SECTIONS["machine"]}
    monkeypatch.setattr(selftest, "SECTIONS", sections)
    assert not selftest.run_all()
    out = capfd.readouterr().out
    assert "torch" in out
    assert "Something is wrong: nothing like it." in out
