"""A round's draft judged again by the decoder's own rule is what the run recorded."""

import re
from dataclasses import replace

import pytest

from decoders import InputError
from workbench.kinds.judge.judging import At, checked, of_round, of_text
from workbench.models.load import load
from workbench.models.presets import PairChoice
from workbench.runs.recorded import recordings


@pytest.fixture(scope="module")
def embedded():
    return load(PairChoice())


RECORDED = {each.run.id: each.run for each in recordings() if each.run.kind == "comparison"}
JUDGED = [
    (id, result.decoder)
    for id, run in RECORDED.items()
    for result in run.results
    if result.decoder in {"speculative", "mtad", "block", "typical", "bild", "lookup"}
]


@pytest.mark.parametrize(("id", "decoder"), JUDGED)
def test_its_own_rule_keeps_what_the_run_recorded(embedded, id, decoder):
    run = RECORDED[id]
    (result,) = [r for r in run.results if r.decoder == decoder][:1]
    judged = 0
    for entry in result.alone.rounds[:3]:
        if not any(t.fate in ("accepted", "rejected") for t in entry.trials):
            continue
        told = of_round(embedded, run, At(decoder, entry.index))
        (own,) = [row for row in told["rows"] if row["own"]]
        assert own["kept"] == sum(t.fate == "accepted" for t in entry.trials)
        assert {rule for row in told["rows"] for rule in row["rules"]} >= {
            "match", "tokenwise", "block", "traversal", "typical", "mtad",
        }  # fmt: skip
        assert ("chosen, not drawn" in told["note"]) == (decoder == "mtad")
        judged += 1
    assert judged


def test_rows_of_which_the_same_is_true_are_one(embedded):
    rows = of_text(embedded, "Once upon a time", " there was a", settings={"seed": 4})["rows"]
    together = {tuple(row["rules"]) for row in rows}
    assert any({"block", "traversal", "multipath"} <= set(each) for each in together)
    assert all(row["why"].endswith(".") for row in rows)
    assert all(row["mean"] == pytest.approx(sum(row["chances"])) for row in rows)


def test_a_draft_of_ids_and_chosen_rules(embedded):
    ids = embedded.tokenizer(" there was", add_special_tokens=False).input_ids
    told = of_text(embedded, "Once upon a time", str(ids), ["match", "typical(delta=1)"])
    assert "".join(told["tokens"]) == " there was"
    assert [row["rules"] for row in told["rows"]] in (
        [["match"], ["typical"]],
        [["match", "typical"]],
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("", "a"), "Give the text before the draft and the draft"),
        (("a", 5), "Give the text before the draft and the draft"),
        (("Once", " upon", ["blok"]), "did you mean 'block'?"),
        (("Once", " upon", (), {"temprature": 1}), "did you mean 'temperature'?"),
        (("Once", " upon", (), {"temperature": -1}), "temperature must be"),
        (("Once", " upon", (), {"seed": "x"}), "seed must be a whole number"),
        (("Once", "[99999]"), "Token id 99999 is out of range"),
    ],
)
def test_bad_input_gets_one_sentence(embedded, arguments, words):
    with pytest.raises(InputError, match=re.escape(words)):
        of_text(embedded, *arguments)


def test_rounds_that_cannot_be_judged_again_say_why(embedded):
    run = next(iter(RECORDED.values()))
    for where, words in (
        (At("greedy", 0), "Only a round whose draft is one chain"),
        (At("speculative", 999), "This text has rounds 0 to"),
        (At("speculative", "x"), "This text has rounds 0 to"),
        (At("nothing", 0), "This run has no text of"),
    ):
        with pytest.raises(InputError, match=words):
            of_round(embedded, run, where)
    counted = next(run for run in RECORDED.values() if "ngram" in run.decoders)
    with pytest.raises(InputError, match="come from counts"):
        (result,) = [r for r in counted.results if r.decoder == "ngram"][:1]
        index = next(r.index for r in result.alone.rounds if len(r.trials) > 1)
        of_round(embedded, counted, At("ngram", index))
    with pytest.raises(InputError, match="This pair has no draft model"):
        of_text(replace(embedded, draft=None), "Once", " upon")
    with pytest.raises(InputError, match="one JSON object"):
        checked("x")
