"""`python -m workbench batch`: the same experiment from a terminal."""

import csv
import json

import pytest

from workbench import __main__ as program
from workbench.terminal import batch as batch_command


@pytest.fixture
def call(pair, monkeypatch, capsys):
    """Runs the command on the tiny pair; gives its exit status, what it printed and what it complained of."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(batch_command, "load", lambda choice: pair)

    def call(*words: str) -> tuple[int, str, str]:
        try:
            status = program.main(["batch", *words])
        except SystemExit as end:
            status = end.code
        return status, *capsys.readouterr()

    return call


def test_it_measures_prints_and_writes(call, tmp_path):
    prompts = tmp_path / "mine.jsonl"
    prompts.write_text('{"prompt": "aa"}\n{"prompt": "[bold]b"}\n{"prompt": "c"}\n')
    files = [tmp_path / "out.json", tmp_path / "out.csv"]
    status, out, _ = call(
        "--prompts", str(prompts), "--count", "2", "--decoders", "lookup", "--set", "lookup.copy=3", "--sizes", "1", "2",
        "--ways", "vanilla", "unpadded", "--max-new-tokens", "4", "--json", str(files[0]), "--csv", str(files[1]),
    )  # fmt: skip
    assert status == 0
    assert "Identical tokens in every way" in out
    data = json.loads(files[0].read_text())
    assert [(c["decoder"], c["batch_size"], c["way"]) for c in data["cells"]] == [
        ("greedy", 1, "unpadded"), ("lookup", 1, "unpadded"),
        ("greedy", 2, "unpadded"), ("lookup", 2, "vanilla"), ("lookup", 2, "unpadded"),
    ]  # fmt: skip
    assert (data["prompt"], data["prompt_tokens"], data["settings"]["lookup"]["copy"]) == ("mine.jsonl", [2, 7], 3)
    assert len(list(csv.DictReader(files[1].open()))) == 5


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--sizes 0", "A batch size must be a whole number from 1"),
        ("--sizes two", "invalid int value"),
        ("--cache-mb much", "cache_mb must be None or a number from 0.01"),
        ("--cache-mb 2", "A memory budget goes only with ways that pad nothing"),
        ("--prefill-chunk 0", "prefill_chunk must be None or a whole number from 1"),
        ("--ways vanila", "did you mean 'vanilla'"),
        ("--prompts novels", "cannot be read"),
        ("--count 0", "must be at least 1, not 0"),
        ("--decoders lokup", "did you mean 'lookup'"),
        ("--max-new-tokens 0", "max_new_tokens must be"),
        ("--json /no/such/folder/out.json", "There is no folder"),
    ],
)
def test_bad_input_is_one_sentence_before_any_work(call, monkeypatch, words, says):
    monkeypatch.setattr(batch_command, "load", lambda choice: pytest.fail("the models were loaded"))
    status, out, err = call(*words.split())
    assert status == 2
    assert says in err
    assert not out
    assert "Traceback" not in err


def test_a_bad_line_is_named(call, tmp_path):
    file = tmp_path / "mine.txt"
    file.write_bytes(b"fine\n\xff")
    status, _, err = call("--prompts", str(file))
    assert (status, err) == (2, "mine.txt, line 2: not text in UTF-8; save the file as plain text in UTF-8.\n")


def test_bounds_are_kept_with_the_run_and_a_budget_too_small_names_the_line(call, tmp_path):
    prompts, out = tmp_path / "mine.txt", tmp_path / "out.json"
    prompts.write_text("aa\n\nbbbb\n")
    words = [
        "--prompts",
        str(prompts),
        "--decoders",
        "lookup",
        "--sizes",
        "2",
        "--ways",
        "dynamic",
        "--max-new-tokens",
        "4",
    ]
    status, *_ = call(*words, "--cache-mb", "5", "--prefill-chunk", "3", "--json", str(out))
    data = json.loads(out.read_text())
    assert (status, data["settings"]["cache_mb"], data["settings"]["prefill_chunk"]) == (0, 5.0, 3)
    assert all(c["peak_cache_bytes"] > 0 for c in data["cells"])
    status, _, err = call(*words, "--max-new-tokens", "400", "--cache-mb", "0.01")
    assert status == 2
    assert err.startswith("mine.txt, line 3: with ")
    assert "give at least" in err
