"""`python -m workbench train-head`: what it refuses."""

import pytest

from decoders.engine.loading import load


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--width", "31"], "width must be a multiple of 2"),
        (["--text", "/no/such/file.txt"], "The text file /no/such/file.txt cannot be read"),
    ],
)
def test_what_cannot_be_trained_is_said_before_any_work(small, call, tmp_path, flags, said):
    text = tmp_path / "text.txt"
    text.write_text("ab ba")
    target, out = str(load.EMBEDDED / "target"), str(tmp_path / "head")
    status, _, error = call("train-head", target, "--text", str(text), "--out", out, *flags)
    assert status == 2
    assert said in error
    assert not (tmp_path / "head").exists()


def test_where_no_head_can_be_saved_is_said_before_the_training(small, call, tmp_path):
    """With --work elsewhere it was a traceback after the last step."""
    file = tmp_path / "file"
    file.write_text("a file")
    for out in (file, file / "head"):
        status, said, error = call(
            "train-head", "a-target", "--text", "x.txt", "--out", str(out), "--work", str(tmp_path)
        )
        assert (status, said) == (2, "")
        assert f"No head can be saved in {out}: {file} is not a folder" in error


def test_a_folder_with_a_model_is_not_written_over(small, call, tmp_path):
    target = str(load.EMBEDDED / "target")
    status, _, error = call("train-head", target, "--text", "x.txt", "--out", target)
    assert status == 2
    assert "holds a model already; name another folder with --out." in error
