"""`python -m workbench train-head`: what it refuses, and what it says of a head at the end."""

import io
from argparse import Namespace

import pytest
from rich.console import Console

from decoders.engine.loading import load
from workbench.kinds.advice import Advice
from workbench.terminal import heads


def test_it_says_whether_the_head_pays(small, monkeypatch):
    """After an hour of training the advice ended in "No decoder is chosen"."""

    monkeypatch.setattr(heads, "ADVISED", 2)
    monkeypatch.setattr(Advice, "usual", {**Advice.usual, "max_new_tokens": 12})
    said = io.StringIO()
    folders = {role: str(load.EMBEDDED / role) for role in ("target", "head")}
    asked = Namespace(target=folders["target"], out=folders["head"], device="auto")
    heads.advise(asked, Console(file=said, width=200))
    # Which decoder is quickest is the machine's to say: on a busy one it was greedy decoding.
    assert "The best exact decoder is " in said.getvalue()
    assert "draft_length=8" in said.getvalue()  # each length is measured


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
