"""A round's draft judged again by the decoder's own rule is what the run recorded."""

import gradio as gr
import pytest

from decoders import InputError, load_pair
from tests.models import folder_of_three
from tests.pairwise import part
from tests.workbench.conftest import finished
from tests.workbench.kinds.test_branch import answer
from tests.workbench.page.visitor import Visitor
from workbench.kinds.comparison import Comparison
from workbench.kinds.comparison.judging import of_round
from workbench.runs.record import Run
from workbench.studies.settings import Settings

OWN = ("speculative", "block", "typical", "bild", "cascade", "lookup", "mtad")
RULES = {"match", "tokenwise", "block", "traversal", "typical", "mtad"}


@pytest.fixture(scope="module")
def judged(pair, unmetered) -> Run:
    """A run of decoders with chains, and of some without."""
    settings = {
        "decoders": [*OWN, "ngram", "match", "greedy"], "max_new_tokens": 16, "timings": 1,
        "temperature": 0.7, "bild": {"fallback": 0.0},
    }  # fmt: skip
    study = Comparison("abab <b>abab</b> abab", Settings.from_json(settings))
    return finished(pair, study, unmetered)


def rounds(run: Run, decoder: str) -> list:
    """The rounds of a decoder that have a draft."""
    (result,) = [r for r in run.results if r.decoder == decoder]
    drafted = ("accepted", "rejected", "discarded")
    return [r for r in result.alone.rounds if any(t.fate in drafted for t in r.trials)]


@pytest.mark.parametrize("decoder", part(OWN))
def test_its_own_rule_keeps_what_the_run_recorded(pair, judged, decoder):
    for entry in rounds(judged, decoder):
        told = of_round(pair, judged, decoder, entry.index)
        (own,) = [row for row in told["rows"] if row["own"]]
        assert own["kept"] == sum(t.fate == "accepted" for t in entry.trials)
        assert {rule for row in told["rows"] for rule in row["rules"]} >= RULES
        assert ("chosen, not drawn" in told["note"]) == (decoder == "mtad")
    assert rounds(judged, decoder)


def test_a_heads_draft_is_judged_with_the_heads_q(unmetered, tmp_path):
    """Not with that of the draft model beside it."""
    both = load_pair(folder_of_three(tmp_path), device="cpu")
    settings = {"decoders": ["speculative"], "speculative": {"draft": "head"}, "timings": 1}
    study = Comparison("abab", Settings.from_json({**settings, "max_new_tokens": 16}))
    run = finished(both, study, unmetered)
    for entry in rounds(run, "speculative"):
        rows = of_round(both, run, "speculative", entry.index)["rows"]
        (own,) = [row for row in rows if row["own"]]
        assert own["kept"] == sum(t.fate == "accepted" for t in entry.trials)
    assert len(rounds(run, "speculative")) > 3
    # A mixture was said to be exact for it, but a head's q is no function of the text.
    mixtures = [row for row in rows if {"cascade", "ensemble"} & {*row["rules"]}]
    assert {row["law"] for row in mixtures} == {"not exact"}


def test_match_is_not_repeated_for_its_own_round(pair, judged):
    """It draws in place of testing: with other draws it would contradict the round."""
    entry = rounds(judged, "match")[0]
    rows = of_round(pair, judged, "match", entry.index)["rows"]
    assert not any("match" in row["rules"] or row["own"] for row in rows)


def test_rows_of_which_the_same_is_true_are_one(pair, judged):
    entry = rounds(judged, "speculative")[0]
    rows = of_round(pair, judged, "speculative", entry.index)["rows"]
    together = {tuple(row["rules"]) for row in rows}
    assert any({"block", "traversal", "multipath"} <= set(each) for each in together)
    assert all(row["why"].endswith(".") for row in rows)
    assert all(row["mean"] == pytest.approx(sum(row["chances"])) for row in rows)


def test_rounds_that_cannot_be_judged_again_say_why(pair, judged):
    for where, words in (
        (("greedy", 0), "Only a round whose draft is one chain"),
        (("speculative", 999), "This text has rounds 0 to"),
        (("speculative", "x"), "This text has rounds 0 to"),
        (("nothing", 0), "This run has no text of"),
        (("ngram", rounds(judged, "ngram")[0].index), "come from counts"),
    ):
        with pytest.raises(InputError, match=words):
            of_round(pair, judged, *where)


ASKED = "prompt=ab<b>&decoders=speculative&max_new_tokens=8&temperature=0.7&timings=1"


@pytest.fixture(scope="module")
def visitor(house) -> Visitor:
    visitor = Visitor(house[1], ASKED)
    visitor.press("run")
    return visitor


def ask(visitor: Visitor, data):
    visitor.event = gr.EventData(None, data)
    visitor.fire("panels", "expand")
    assert visitor.breakdowns == []
    return answer(visitor)


def test_a_round_of_a_run_is_judged(house, visitor):
    store = house[0].store
    run = store.get(store.list()[0].id)
    asked = {"ask": "q", "run": run.id, "decoder": "speculative", "round": 0}
    found = ask(visitor, asked)
    assert found["ask"] == "q"
    kept = sum(t.fate == "accepted" for t in run.results[0].alone.rounds[0].trials)
    assert (found["rows"][0]["own"], found["rows"][0]["kept"]) == (True, kept)
    assert len(found["tokens"]) == len(found["rows"][0]["chances"])


@pytest.mark.parametrize("data", [
    None, {}, {"run": 5, "decoder": "x"}, {"run": "no", "decoder": "speculative", "round": 0},
])  # fmt: skip
def test_anything_else_gets_one_sentence(visitor, data):
    assert ask(visitor, data)["error"].endswith(".")
