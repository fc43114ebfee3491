"""Bad input is one sentence and status 2, of every command and before any work."""

import io

import pytest


@pytest.mark.parametrize(("words", "says"), [
    ("bogus", "--help"),
    ("compare", "--help"),
    ("runs burn", "--help"),
    ("--port 80 runs", "--help"),
    ("compare x --colour", "--help"),
    ("compare x --decoders gredy", "did you mean 'greedy'"),
    ("compare x --set mtad.beams=900", "beams must be"),
    ("compare x --set beams=3", "as in mtad.beams=8"),
    ("compare x --models a b c", "a target and a draft"),
    ("compare x --csv /tmp", "/tmp is a folder"),
    ("batch --sizes 0", "A batch size must be a whole number from 1"),
    ("batch --sizes two", "invalid int value"),
    ("batch --ways vanila", "did you mean 'vanilla'"),
    ("batch --prompts novels", "cannot be read"),
    ("batch --json /no/such/folder/out.json", "There is no folder"),
    ("experiment storys", "did you mean 'stories'"),
    ("experiment engines", "The plan `engines` is gone; AIPerf, GuideLLM and `vllm bench"),
    ("experiment stories --limit x", "--limit takes a whole number"),
    ("experiment stories --data /no/such", "There is no folder /no/such"),
    ("experiment stories --to pdf", "invalid choice: 'pdf'"),
    ("experiment report nothing", "There is no experiment 'nothing'"),
    ("runs show abc", "There is no run 'abc'"),
    ("runs delete abc", "There is no run 'abc'"),
    ("runs export abc out.pdf", "must end in .json, .csv, .html"),
    (f"runs import {__file__}", "This is not a run of the workbench"),
    ("runs list --kind poem", "invalid choice: 'poem'"),
    ("canary ftp://host", "the URL must begin with http"),
    ("canary http://127.0.0.1:1", "cannot be reached"),
    ("canary http://127.0.0.1:1 --draws many", "--draws takes a whole number, not 'many'"),
    ("canary http://127.0.0.1:1 --key NOT_SET", "`key` must name an environment variable"),
    ("canary http://127.0.0.1:1 --json /no/folder/x", "There is no folder"),
])  # fmt: skip
def test_bad_input_is_one_sentence(call, loads, words, says):
    status, out, err = call(*words.split())
    assert (status, out, loads) == (2, "", [])
    assert says in err
    assert err.strip().count("\n") == 0


def test_standard_input_in_another_encoding_is_one_sentence(call, loads, monkeypatch):
    """Where the locale passes bytes on, half a character was to be typed again."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9")))
    status, out, err = call("compare", "-")
    assert (status, out, loads) == (2, "", [])
    assert "Standard input: not text in UTF-8" in err
