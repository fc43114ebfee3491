"""Draws in words and as trees: the counts add up, and no text of a model is markup."""

from html.parser import HTMLParser

import pytest

from tests.workbench.made import UNMEASURED
from workbench.kinds.draw import Draw
from workbench.runs.record import Piece, Prefix, Result, Run, Sample
from workbench.show import draws
from workbench.show.view import WRITERS, to_html

TEXTS = {1: "<script>alert(1)</script>", 2: " cat\n", 3: "\u202eevil\x1b[31m", 4: ""}
HOSTILE = '"><img src=x onerror=alert(1)>${x}{{{y}}}'


def sample(i: int, tokens: tuple[int, ...]) -> Sample:
    pieces = [Piece(t, TEXTS.get(t, f"w{t}")) for t in tokens]
    return Sample(i, 2, pieces=pieces, finished="budget")


def made(
    texts: list[tuple[int, ...]], decoder: str = "multinomial", law=None, more=(), **settings
) -> Run:
    """A run of these texts; the law of first tokens is uniform over four unless given."""
    metrics = {"tokens_per_second": 10.0, "seconds": 1.0, "new_tokens": 10}
    results = []
    for name, drawn in [(decoder, texts), *more]:
        samples = [sample(i, text) for i, text in enumerate(drawn)]
        results.append(Result(name, 0, 0, metrics, UNMEASURED, samples, scheme="dynamic"))
    asked = {"decoders": [r.decoder for r in results], **settings}
    study = Draw.from_json({"prompt": HOSTILE, "settings": asked})
    exact = [Prefix([i], TEXTS[i], 0.25) for i in TEXTS] if law is None else law
    return Run(
        "ab", "2026-11-20T00:00:00+00:00", "draw", HOSTILE, study.to_json(), {"dtype": "float32"},
        results, exact=exact,
    )  # fmt: skip


EVEN = [(1 + i % 4, 2, 3) for i in range(100)]
ODD = [(1, 2, 3)] * 60 + [(2, 2, 2)] * 40
# Pearson: p = 0.004
UNLUCKY = [(i,) for i, count in ((1, 67), (2, 57), (3, 43), (4, 33)) for _ in range(count)]


@pytest.mark.parametrize(("run", "says"), [
    (made(EVEN), "Plain sampling draws like the large model: these draws show no difference."),
    (made(ODD), "Plain sampling draws unlike the large model: a fault of it, or of models"),
    (made(ODD, "mtad"), "MTAD does not promise to draw like the large model; these draws"),
    (made(EVEN, "greedy"), "Greedy does not promise to draw like the large model."),
    (made(EVEN, law=[]), "There is nothing to compare: too few draws, or no first words"),
    (made([]), "There is nothing to compare"),
    (made(EVEN, temperature=0.0, law=[]), "At temperature 0 nothing is left to chance"),
])  # fmt: skip
def test_the_sentences(run, says):
    assert draws.verdict(run).startswith(says)


def test_one_unlucky_set_of_seeds_is_no_proof_against_five_decoders():
    """200 draws of the default seeds: "Plain sampling: Unlike the target (p = 0.019)", and the same
    of four exact decoders, which have the same seeds: one unlucky set read as five proofs."""
    names = ("speculative", "spectr", "specinfer", "block")
    run = made(UNLUCKY, more=[(name, UNLUCKY) for name in names])
    assert "unlike" not in draws.verdict(run)
    assert draws.reach(run).startswith("Seeds 0 to 199. ")


IMPOSSIBLE = [*(Prefix([i], TEXTS[i], 0.25) for i in TEXTS), Prefix([1, 7], "w7", 0.0)]


def test_one_text_that_the_target_never_writes_is_proof():
    """A text of probability 0 counted in the smallest cell, where one draw more says nothing."""
    texts = [*EVEN[:60], (1, 7, 3), *EVEN[60:]]
    run = made(EVEN, more=[("speculative", texts), ("mtad", texts)], law=IMPOSSIBLE)
    words = draws.verdict(run)
    assert words.startswith("Plain sampling draws like the large model: ")
    assert " Speculative draws unlike the large model" in words
    assert " MTAD does not promise to draw like the large model; these draws differ. " in words
    wrote = "wrote “<script>alert(1)</script>w7”, which the large model never writes"
    assert all(f"Seed 60 of {name} {wrote}" in words for name in ("Speculative", "MTAD"))
    found = draws.findings(made(texts, law=IMPOSSIBLE))[0]
    assert (found.p, found.unlike, found.seed) == (0.0, True, 60)
    tree = parsed(draws.trees(made(texts, law=IMPOSSIBLE)))
    assert "0.0" in tree.texts
    assert "script" not in tree.seen


class Nesting(HTMLParser):
    """Fails where an element is not closed in order."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in ("img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def parsed(text: str) -> Nesting:
    found = Nesting()
    found.feed(text)
    found.close()
    assert found.open == []
    return found


def test_first_words_stand_beside_what_the_large_model_makes_one_expect():
    texts = [(1, 2)] * 70 + [(2, 3)] * 20 + [(3,)] * 10
    law = [Prefix([1], TEXTS[1], 0.6), Prefix([2], TEXTS[2], 0.3), Prefix([3], TEXTS[3], 0.1)]
    found = parsed(draws.first_words(made(texts, law=law)))
    assert not found.seen & {"script", "img"}
    assert found.texts[-9:] == [
        "<script>alert(1)</script>", "70", "60.0", "cat", "20", "30.0", "¤evil␛[31m", "10", "10.0"
    ]  # fmt: skip
    many = [(token,) for token in range(10, 20) for _ in range(10)]
    assert parsed(draws.first_words(made(many, law=[]))).texts[-2:] == ["others", "50"]
    assert draws.first_words(made([])) == ""


FORKED = [(1, 2, 3), (1, 2, 3), (1, 2), (1, 3), (2,), (4, 1, 1, 2, 3), (3,) * 30]


def test_a_tree_counts_merges_what_does_not_fork_and_is_closed():
    found = parsed(draws.trees(made(FORKED)))
    assert not found.seen & {"script", "img"}
    counts = [int(text) for text in found.texts if text.isdecimal()]
    # "<script>…" 4: then cat 3 (2 go on, 1 ends), evil 1; the others once
    assert counts == [4, 3, 2, 1, 1, 1, 1, 1]
    assert any("alert(1)" in text for text in found.texts)
    assert not any(c in "".join(found.texts) for c in "\u202e\x1b")
    assert "(1.8)" not in "".join(found.texts)  # brackets are the style sheet's
    assert "1.8" in found.texts  # 7 draws, a quarter of them


def test_a_file_with_a_thousand_forks_above_each_other_is_shown():
    """Each text leaves the one before it a token later. A fold in a fold a thousand times over is
    more than Python can follow."""
    found = parsed(draws.trees(made([(2,) * i + (1,) for i in range(1000)], law=[])))
    assert any("…" in text for text in found.texts)


def test_files_of_every_format_have_what_the_draws_say():
    run = made(EVEN, more=[("mtad", ODD)])
    assert Run.from_json(WRITERS["json"](run)) == run
    first, second = WRITERS["csv"](run).splitlines()[1:]
    assert ",100,4,target,100,1.0," in first
    assert ",100,2,own,100,,0.5," in second
    report = to_html(run)
    assert "Plain sampling draws like the large model: these draws show no difference" in report
    assert "<img src=x" not in report
    assert "<script>alert" not in report
    assert 'assert_law(catalog["multinomial"]())' in report.replace("&quot;", '"')


def test_holm_corrects_over_the_decoders_that_claim_a_law():
    few = [(1, 2, 3)] * 45 + [(2, 2, 2)] * 30 + [(3,)] * 15 + [(4,)] * 10
    alone = draws.findings(made(few))[0].p
    first, second, own = draws.findings(made(few, more=[("speculative", EVEN), ("mtad", ODD)]))
    assert 0 < alone < 0.1
    assert (first.p, second.p, own.p) == (pytest.approx(2 * alone), 1.0, None)


def test_of_beams_only_the_first_token_can_be_impossible():
    run = made(EVEN, "beam_sampling", law=[*IMPOSSIBLE, Prefix([9], "w9", 0.0)])
    for i, each in enumerate(run.results[0].samples):
        each.beams.extend([1 + i % 4] * 4)
    assert " draws like one step of beam sampling" in draws.verdict(run)
    run.results[0].samples[5].beams[2] = 9
    assert " draws unlike one step of beam sampling" in draws.verdict(run)
    assert " wrote “w9”, which" in draws.verdict(run)


def test_the_verdict_is_told_once_in_plain_words():
    """It was a list of total variations, which the table below repeats."""
    run = made(EVEN, more=[("speculative", EVEN), ("mtad", ODD)])
    assert draws.verdict(run) == (
        "Plain sampling and Speculative draw like the large model: these draws show no difference. "
        "MTAD does not promise to draw like the large model; these draws differ."
    )
