"""Draws in words and as trees: the counts add up, and no text of a model is markup."""

from html.parser import HTMLParser

import pytest

from tests.workbench.made import UNMEASURED
from workbench.runs.record import Result, Run, Sample
from workbench.runs.trace import Piece, Prefix
from workbench.show import draws
from workbench.show.files import WRITERS
from workbench.show.report import to_html
from workbench.studies.draw import Draw

TEXTS = {1: "<script>alert(1)</script>", 2: " cat\n", 3: "\u202eevil\x1b[31m", 4: ""}
HOSTILE = '"><img src=x onerror=alert(1)>${x}{{{y}}}'


def sample(i: int, tokens: tuple[int, ...], **changes) -> Sample:
    return Sample(i, 2, pieces=[Piece(t, TEXTS.get(t, f"w{t}")) for t in tokens], **{"finished": "budget", **changes})


def made(texts: list[tuple[int, ...]], decoder: str = "multinomial", law=None, more=(), **settings) -> Run:
    """A run of these texts; the law of first tokens is uniform over four unless given."""
    results = [
        Result(
            name, 0, 0, {"tokens_per_second": 10.0, "seconds": 1.0, "new_tokens": 10}, UNMEASURED,
            [sample(i, text) for i, text in enumerate(drawn)], scheme="dynamic",
        )
        for name, drawn in [(decoder, texts), *more]
    ]  # fmt: skip
    study = Draw.from_json({"prompt": HOSTILE, "settings": {"decoders": [r.decoder for r in results], **settings}})
    exact = [Prefix([i], TEXTS[i], 0.25) for i in TEXTS] if law is None else law
    return Run(
        "ab", "2026-11-20T00:00:00+00:00", "draw", HOSTILE, study.to_json(), {"dtype": "float32"}, results, exact=exact
    )


EVEN = [(1 + i % 4, 2, 3) for i in range(100)]
ODD = [(1, 2, 3)] * 60 + [(2, 2, 2)] * 40


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (made(EVEN), "No difference from the target seen in 100 draws (p = 1.00)."),
        (made(ODD), "Unlike the target in 100 draws (p < 0.001): total variation 0.50"),
        (
            made(ODD, "mtad"),
            "Does not promise the target's distribution; further from the target than exact draws in 100 draws",
        ),
        (made(EVEN, "mtad"), "as near to the target as exact draws are in 100 draws (total variation 0.00"),
        (made(ODD, "greedy"), "Does not promise the target's distribution"),
        (made(EVEN[:10]), "10 draws: too few to compare with the target."),
        (made([]), "0 draws: too few to compare with the target."),
        (made(EVEN, temperature=0.0, law=[]), "At temperature 0 nothing is left to chance"),
    ],
)
def test_the_sentences(run, says):
    (words,) = draws.verdicts(run)
    assert says in words


def test_beams_of_the_first_step_are_named():
    run = made(EVEN, "beam_sampling")
    for i, each in enumerate(run.results[0].samples):
        each.beams.extend([1 + i % 4] * 4)
    assert (
        "No difference from one step of beam sampling seen in the 400 first beams of 100 draws"
        in draws.verdicts(run)[0]
    )


def test_holm_corrects_over_the_decoders_that_claim_a_law():
    few = [(1, 2, 3)] * 35 + [(2, 2, 2)] * 25 + [(3,)] * 20 + [(4,)] * 20
    alone = draws.findings(made(few))[0].p
    first, second, own = draws.findings(made(few, more=[("speculative", EVEN), ("mtad", ODD)]))
    assert (first.p, second.p, own.p) == (pytest.approx(2 * alone), 1.0, None)


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


FORKED = [(1, 2, 3), (1, 2, 3), (1, 2), (1, 3), (2,), (4, 1, 1, 2, 3), (3,) * 30]


def test_a_tree_counts_merges_what_does_not_fork_and_is_closed():
    found = parsed(draws.trees(made(FORKED)))
    assert not found.seen & {"script", "img"}
    counts = [text for text in found.texts if text.isdecimal()]
    assert counts == [
        "4",
        "3",
        "2",
        "1",
        "1",
        "1",
        "1",
        "1",
    ]  # "<script>…" 4: then cat 3 (2 go on, 1 ends), evil 1; the others once
    assert any("alert(1)" in text for text in found.texts)
    assert not any(c in "".join(found.texts) for c in "\u202e\x1b")
    assert "(1.8)" not in "".join(found.texts)  # brackets are the style sheet's
    assert "1.8" in found.texts  # 7 draws, a quarter of them


def test_what_is_rare_is_folded_and_a_huge_tree_ends():
    many = [(i % 200 + 10, i) for i in range(4000)]
    found = parsed(draws.trees(made(many, law=[])))
    assert "details" in found.seen
    assert any("others" in text for text in found.texts)
    assert sum(text.isdecimal() for text in found.texts) <= draws.MOST_LINES + 200


def test_a_file_with_a_thousand_forks_above_each_other_is_shown():
    """Each text leaves the one before it a token later: a fold in a fold a thousand times over is more than Python can follow."""
    found = parsed(draws.trees(made([(2,) * i + (1,) for i in range(1000)], law=[])))
    assert any("…" in text for text in found.texts)


def test_files_of_every_format_have_what_the_draws_say():
    run = made(EVEN, more=[("mtad", ODD)])
    assert Run.from_json(WRITERS["json"](run)) == run
    first, second = WRITERS["csv"](run).splitlines()[1:]
    assert ",100,4,target,100,1.0," in first
    assert ",100,2,own,100,,0.5," in second
    report = to_html(run)
    assert "No difference from the target seen in 100 draws" in report
    assert "<img src=x" not in report
    assert "<script>alert" not in report
    assert 'assert_law(catalog["multinomial"]())' in report.replace("&quot;", '"')
