"""`python -m workbench branch`: alternatives, and a run that continues from one of them."""

import pytest

WORDS = (
    "compare",
    "abab",
    "--decoders",
    "greedy",
    "mtad",
    "--max-new-tokens",
    "6",
    "--temperature",
    "0.7",
    "--top-k",
    "5",
    "--timings",
    "1",
)


@pytest.fixture
def parent(call, store) -> str:
    call(*WORDS)
    return store.list()[0].id


def test_alternatives_are_listed_and_one_of_them_is_continued(call, store, parent, tmp_path):
    status, out, _ = call("branch", parent, "--decoder", "mtad", "--at", "2")
    assert status == 0
    lines = out.splitlines()[1:]
    assert len(lines) == 20
    assert "p of" not in out  # MTAD does not draw token by token
    _, drawn, _ = call("branch", parent, "--decoder", "greedy", "--at", "2")
    assert "p of Greedy" in drawn
    assert sum(line.split()[-1] == "never" for line in drawn.splitlines()) == 19
    token = lines[1].split()[0]
    status, out, _ = call(
        "branch", parent, "--decoder", "mtad", "--at", "2", "--token", token, "--decoders", "mtad",
        "greedy", "--json", str(tmp_path / "x.json")
    )  # fmt: skip
    assert status == 0
    child = store.get(store.list()[0].id)
    assert child.decoders == ["greedy", "mtad"]
    (step,) = child.study["start"]["trail"]
    assert (step["run"], step["decoder"], step["at"]) == (parent, "mtad", 2)
    assert child.study["start"]["ids"][-1] == int(token[1:])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--decoder", "dsbd", "--at", "1"), "This run has no text of 'dsbd'"),
        (("--decoder", "mtad", "--at", "99"), "choose a place from 0 to"),
        (("--decoder", "mtad", "--at", "1", "--token", "#99999"), "There is no token 99999"),
        (("--decoder", "mtad", "--at", "1", "--token", "ab"), "2 tokens here"),
        (
            ("--decoder", "mtad", "--at", "1", "--token", "a", "--decoders", "mtadd"),
            "did you mean 'mtad'?",
        ),
    ],
)
def test_what_is_not_there_is_one_sentence(call, parent, words, says):
    status, _, complaint = call("branch", parent, *words)
    assert status == 2
    assert says in complaint


def test_a_run_that_is_not_there(call, store):
    status, _, complaint = call("branch", "0123", "--decoder", "mtad", "--at", "1")
    assert (status, complaint) == (2, "There is no run '0123'; it may have been deleted.\n")
