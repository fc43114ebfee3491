"""The self-test names what ran, finds faults, and has an exit code for them."""

import pytest

from decoders import selftest


@pytest.mark.slow
def test_tokens(capsys):
    selftest.run("tokens")
    assert "the same tokens" in capsys.readouterr().out


def test_models_in_each_number_type(capsys):
    selftest.run("models")
    shown = capsys.readouterr().out
    assert all(
        f"{name}: prompts, chains and trees, error" in shown
        for name in ("float32", "float16", "bfloat16")
    )


@pytest.mark.slow
def test_a_check_that_crashes_fails_alone(monkeypatch, capfd):
    """An illegal address on a GPU ends the process that it happens in."""
    checks = {"machine": selftest.CHECKS["machine"], "nothing like it": selftest.CHECKS["machine"]}
    monkeypatch.setattr(selftest, "CHECKS", checks)
    assert selftest.run_all() == 1
    out = capfd.readouterr().out
    assert "  transformers" in out
    assert "Something is wrong: nothing like it." in out
