"""`python -m workbench batch`: the same study from a terminal."""

import csv

import pytest

from decoders import catalog
from workbench.runs.record import Run


def test_it_measures_prints_writes_and_keeps(call, store, tmp_path):
    prompts = tmp_path / "mine.jsonl"
    prompts.write_text('{"prompt": "aa"}\n{"prompt": "[bold]b"}\n{"prompt": "c"}\n')
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "csv", "html")}
    status, out, _ = call(
        "batch", "--prompts", str(prompts), "--count", "2", "--decoders", "lookup", "--set",
        "lookup.copy=3", "--sizes", "1", "2", "--schemes", "vanilla", "unpadded",
        "--max-new-tokens", "4",
        *(x for kind, path in files.items() for x in (f"--{kind}", str(path))),
    )  # fmt: skip
    assert status == 0
    assert "Identical tokens in every scheme" in out
    run = Run.from_json(files["json"].read_bytes())
    assert [(r.decoder, r.batch_size, r.scheme) for r in run.results] == [
        ("greedy", 1, "unpadded"), ("lookup", 1, "unpadded"),
        ("greedy", 2, "unpadded"), ("lookup", 2, "vanilla"), ("lookup", 2, "unpadded"),
    ]  # fmt: skip
    assert (run.title, run.settings["lookup"]["copy"]) == ("2 mine.jsonl", 3)
    # its texts, too
    assert run.study["prompts"] == {"name": "mine.jsonl", "count": 2, "texts": ["aa", "[bold]b"]}
    assert [s.prompt_length for s in run.results[0].samples] == [2, 7]
    assert len(list(csv.DictReader(files["csv"].open()))) == 5
    assert files["html"].read_text().startswith("<!doctype html>")
    assert store.get(run.id) == run
    assert out.endswith(f"\nkept as run {run.id}\n")


def test_prompts_that_repeat_are_said(call, tmp_path):
    """A file with the same prompt on two lines was measured without a word."""
    prompts = tmp_path / "mine.txt"
    prompts.write_text("a\nb\na\na\na\na\n")
    words = (
        "batch",
        "--prompts",
        str(prompts),
        "--decoders",
        "lookup",
        "--sizes",
        "1",
        "--max-new-tokens",
        "2",
    )
    places = "line 3, line 4, line 5, …"
    assert (
        f"mine.txt: 6 prompts; 4 of them repeat earlier ones ({places})\n"
        in call(*words, "--no-save")[2]
    )
    assert "repeat" not in call(*words, "--count", "2", "--no-save")[2]


def test_a_text_may_end_where_it_ends(call, store):
    words = (
        "batch",
        "--count",
        "1",
        "--decoders",
        "lookup",
        "--sizes",
        "1",
        "--max-new-tokens",
        "2",
    )
    call(*words, "--end")
    call(*words)
    assert [store.get(r.id).settings["ignore_eos"] for r in store.list(order="oldest")] == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--sizes 0", "A batch size must be a whole number from 1"),
        ("--sizes two", "invalid int value"),
        ("--cache-mb much", "cache_mb must be None or a number from 0.01"),
        ("--cache-mb 2", "A memory budget works only with schemes that pad nothing"),
        ("--prefill-chunk 0", "prefill_chunk must be None or a whole number from 1"),
        ("--schemes vanila", "did you mean 'vanilla'"),
        ("--ways vanila", "did you mean 'vanilla'"),
        ("--prompts novels", "cannot be read"),
        ("--count 0", "must be a whole number of at least 1, not 0"),
        ("--decoders lokup", "did you mean 'lookup'"),
        ("--max-new-tokens 0", "max_new_tokens must be"),
        ("--json /no/such/folder/out.json", "There is no folder"),
    ],
)
def test_bad_input_is_one_sentence_before_any_work(call, loads, words, says):
    status, out, err = call("batch", *words.split())
    assert (status, out, loads) == (2, "", [])
    assert says in err
    assert err.strip().count("\n") == 0


def test_a_bad_line_is_named(call, tmp_path):
    file = tmp_path / "mine.txt"
    file.write_bytes(b"fine\n\xff")
    status, _, err = call("batch", "--prompts", str(file))
    assert (status, err) == (
        2,
        "mine.txt, line 2: not text in UTF-8; save the file as plain text in UTF-8.\n",
    )


def test_bounds_are_kept_with_the_run_and_a_budget_too_small_names_the_line(call, store, tmp_path):
    prompts = tmp_path / "mine.txt"
    prompts.write_text("aa\n\nbbbb\n")
    words = (
        "batch",
        "--prompts",
        str(prompts),
        "--decoders",
        "lookup",
        "--sizes",
        "2",
        "--schemes",
        "dynamic",
    )
    status, *_ = call(*words, "--max-new-tokens", "4", "--cache-mb", "5", "--prefill-chunk", "3")
    run = store.get(store.list()[0].id)
    assert (status, run.settings["cache_mb"], run.settings["prefill_chunk"]) == (0, 5.0, 3)
    assert all(r.metrics["peak_cache_bytes"] > 0 for r in run.results)
    status, _, err = call(*words, "--max-new-tokens", "400", "--cache-mb", "0.01")
    assert status == 2
    assert err.startswith("mine.txt, line 3: with ")
    assert "give at least" in err


def test_a_decoder_that_fails_gives_status_1_and_its_reason(call, store, monkeypatch):
    def decode(self, request):
        raise RuntimeError("broken on purpose")
        yield

    monkeypatch.setattr(catalog["lookup"], "decode", decode)
    words = (
        "batch",
        "--count",
        "2",
        "--decoders",
        "lookup",
        "speculative",
        "--sizes",
        "1",
        "--max-new-tokens",
        "4",
    )
    status, out, _ = call(*words)
    assert status == 1
    assert "broken on purpose" in out
    assert len(store.list()) == 1
