"""`python -m workbench prove`: a file with a function, and what its reader is told."""

import pytest

TOKEN_WISE = """
def verify(p, q, tokens, source):
    for i, token in enumerate(tokens):
        if not source.accept(p[i, token] / q[i, token]):
            return i, source.draw((p[i] - q[i]).clamp(min=0))
    return len(tokens), source.draw(p[-1])

def lenient(p, q, tokens, source):
    for i, token in enumerate(tokens):
        if not source.accept(2 * p[i, token] / q[i, token]):
            return i, source.draw((2 * p[i] - q[i]).clamp(min=0))
    return len(tokens), source.draw(p[-1])

def walk(p, q, tokens, parents, source):
    row = 0
    while True:
        token = source.draw(p[row])
        there = [i + 1 for i, parent in enumerate(parents) if (parent, tokens[i]) == (row, token)]
        if not there:
            return row, token
        row = there[0]

def elsewhere(p, q, tokens, source):
    import random
    return 0, random.randrange(len(p[0]))
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rule.py"
    path.write_text(TOKEN_WISE)
    return str(path)


def test_a_lossless_function_is_called_so(call, file):
    status, out, _ = call("prove", file)
    assert status == 0
    assert out.startswith("Lossless on all ")


def test_a_lossy_one_comes_with_numbers(call, file):
    status, out, _ = call("prove", file, "--function", "lenient")
    assert status == 1
    assert "target p = 1/2, 1/2 everywhere\ndraft  q = 0, 1 everywhere" in out


def test_a_function_of_trees_takes_chosen_children(call, file):
    status, out, _ = call("prove", file, "--function", "walk", "--children", "likeliest")
    assert status == 0
    assert "Lossless" in out


@pytest.mark.parametrize(("words", "says"), [
    (("--function", "elsewhere"), "draws from elsewhere than `source`"),
    (("--function", "x"), "has no function 'x'; name one with --function"),
])  # fmt: skip
def test_what_cannot_be_proven_is_one_sentence(call, file, words, says):
    status, out, errors = call("prove", file, *words)
    assert (status, out) == (2, "")
    assert says in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize(("text", "says"), [
    (None, "cannot be read: No such file"),
    ("raise SystemExit(3)", "failed: SystemExit: 3"),
    ("def verify(p, q, tokens, source):\n    raise SystemExit(0)", "failed with p = "),
])  # fmt: skip
def test_a_file_that_cannot_be_used_is_one_sentence(call, tmp_path, text, says):
    """A function that ends the program with 0 was once called lossless, without a word."""
    path = tmp_path / "rule.py"
    if text is not None:
        path.write_text(text)
    status, _, errors = call("prove", str(path))
    assert status == 2
    assert says in errors
    assert len(errors.splitlines()) == 1
