"""Nothing has moved since the golden data was made: see README.md here."""

import json
from difflib import unified_diff

import pytest

from tests.golden import decoding, links, make, records, stored, terminal
from tests.golden.files import read
from tests.pairwise import EVERYWHERE

# `make test` tries every so manieth call, another sampling, seed and batch for each decoder, and
# `make test-all` (EVERYWHERE=1) all of them.
STRIDES = {"float64": 73, "float32": 37}
# Whether a draft token that nobody tests is drawn or its neighbour, rounding decides: in these
# calls the width of a processor's vectors does. Their texts must not differ.
TIES = {f"float32 | mcss | T=1 | {call}" for call in ("seed 0 | batch", "seed 1 | alone")}


def sample(dtype: str) -> tuple[dict, list[decoding.Case]]:
    golden = read(dtype)
    cases = [case for case in decoding.cases(golden["settings"]) if case.dtype == dtype]
    return golden["records"], cases[:: 1 if EVERYWHERE else STRIDES[dtype]]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_decoders_give_the_same_tokens_fates_probabilities_and_counts(dtype):
    before, cases = sample(dtype)
    found = {
        case.name: decoding.difference(case, before[case.name], decoding.record(case))
        for case in cases
    }
    moved = [
        f"{name}: {says}"
        for name, says in found.items()
        if says and not (name in TIES and says.endswith("the text is the same"))
    ]
    assert not moved, f"{len(moved)} of {len(cases)} calls differ\n" + "\n".join(moved[:40])


def test_links_ask_for_the_same_studies():
    assert len(links.QUERIES) == 40
    assert json.loads(json.dumps(links.parsed())) == read("links")


def test_stored_runs_and_experiments_open_as_they_did(tmp_path):
    assert records.missing(read("stored"), stored.opened(tmp_path), tolerance=1e-12) is None


def test_the_page_and_batches_answer_as_they_did(tmp_path):
    golden = read("answers")
    now = json.loads(json.dumps(make.answers(tmp_path, golden["settings"], EVERYWHERE)))
    before = {name: golden["answers"][name] for name in now}
    assert len(before) == (5 if EVERYWHERE else 2)
    assert records.missing(before, now) is None


def test_the_terminal_prints_what_it_printed(tmp_path):
    before, now = read("terminal"), terminal.printed(tmp_path, proofs=EVERYWHERE)
    assert len(before) == 7
    assert len(now) == (7 if EVERYWHERE else 5)
    moved = [
        line
        for words in now
        for line in unified_diff(lines(before[words]), lines(now[words]), words, "now", n=0)
    ]
    assert not moved, "\n".join(moved)


def lines(said: list) -> list[str]:
    return [str(each) for each in said]
