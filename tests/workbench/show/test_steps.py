""" "How it works", told by a real round."""

import re
from dataclasses import replace

import pytest

from decoders import Fate
from tests.workbench.conftest import finished
from workbench.kinds.comparison.study import Comparison
from workbench.runs.record import Run
from workbench.show.steps import four_steps, how_it_works
from workbench.show.sums import gives
from workbench.studies.settings import Settings


def decoded(pair, unmetered, decoders: list[str]) -> Run:
    asked = {"decoders": decoders, "max_new_tokens": 40, "timings": 1, "temperature": 1.0}
    return finished(pair, Comparison("<b>Once</b>", Settings.from_json(asked)), unmetered)


def test_the_steps_are_those_of_one_round(pair, unmetered):
    run = decoded(pair, unmetered, ["greedy", "speculative"])
    where, steps = four_steps(run)
    assert [step.title for step in steps] == ["Guess", "Read", "Test", "Correct"]
    number = int(where.split("round ")[1].split(" of")[0])
    [round_] = [r for r in run.results[1].alone.rounds if r.index == number - 1]
    drafted = steps[0].drawn
    assert drafted == steps[1].drawn == steps[2].drawn
    assert drafted == [
        t for t in round_.trials if t.fate in (Fate.ACCEPTED, Fate.REJECTED, Fate.DISCARDED)
    ]
    refused = next(t for t in drafted if t.fate == Fate.REJECTED)
    assert refused.u >= refused.accept_probability
    assert f"{refused.u:.3g}" in "".join(part for part in steps[2].parts if isinstance(part, str))
    kept = sum(t.fate == Fate.ACCEPTED for t in drafted)
    assert [t.fate for t in steps[3].drawn] == [Fate.ACCEPTED] * kept + [Fate.CORRECTED]
    assert steps[2].chances == (refused.q, refused.p)
    text = "".join(t.text for t in run.results[1].alone.tokens if t.round < number - 1)
    assert text.endswith("".join(t.text for t in steps[0].before))
    assert f"So one pass gave {kept + 1} tokens" in "".join(
        p for p in steps[3].parts if isinstance(p, str)
    )


def refusing(run: Run, **values: float) -> Run:
    """The run with these values for all tokens that it refused."""
    (result,) = run.results
    rounds = [
        replace(
            r, trials=[replace(t, **values) if t.fate == Fate.REJECTED else t for t in r.trials]
        )
        for r in result.alone.rounds
    ]
    return replace(run, results=[replace(result, samples=[replace(result.alone, rounds=rounds)])])


@pytest.mark.parametrize(
    ("p", "q", "u"),
    [
        (0.5384, 0.6447, 0.929),
        (0.0123456, 0.9, 0.0144),
        (1 / 3, 2 / 3, 0.5),
        (0.83449, 1.0, 0.8345),
    ],
)
def test_the_sum_that_a_student_checks_is_right(pair, unmetered, p, q, u):
    """ "0.538 / 0.645 = 84%": from what is shown it is 83%."""
    run = refusing(
        decoded(pair, unmetered, ["speculative"]), p=p, q=q, u=u, accept_probability=p / q
    )
    words = "".join(part for part in four_steps(run)[1][2].parts if isinstance(part, str))
    above, below, chance, drawn = re.search(
        r"chance (\S+) / (\S+) = ([\d.]+)%; the random draw, (\S+), was higher", words
    ).groups()
    assert gives(f"{chance}%", float(above) / float(below))
    assert float(drawn) >= float(chance) / 100


def test_a_token_that_was_not_judged_by_p_over_q_is_no_example(pair, unmetered):
    """ "0.0568 / 0.0736 = 36%": that chance was block verification's, of the whole draft."""
    run = decoded(pair, unmetered, ["block"])
    whole = refusing(run, p=0.0568, q=0.0736, u=0.9, accept_probability=0.36)
    assert four_steps(whole) == ("", [])
    assert four_steps(refusing(run, p=0.0368, q=0.0736, u=0.9, accept_probability=0.5))[1]


def test_a_run_without_drafts_has_no_steps(pair, unmetered, batch_run):
    assert four_steps(decoded(pair, unmetered, ["greedy", "beam_search"])) == ("", [])
    assert four_steps(batch_run) == ("", [])
    assert how_it_works(batch_run) == ""


def test_tokens_in_the_steps_stay_text(pair, unmetered):
    run = decoded(pair, unmetered, ["speculative"])
    [result] = run.results
    hostile = "<img src=x onerror=alert(1)>\u202e\x00👩‍👩‍👧"
    rounds = [
        replace(r, trials=[replace(t, text=hostile) for t in r.trials]) for r in result.alone.rounds
    ]
    run = replace(run, results=[replace(result, samples=[replace(result.alone, rounds=rounds)])])
    tokens = [replace(t, text=hostile) for t in result.alone.tokens]
    alone = replace(result.alone, rounds=rounds, tokens=tokens)
    shown = how_it_works(replace(run, results=[replace(result, samples=[alone])]))
    assert "<img" not in shown
    # a direction does not leave its token
    assert shown.count("<bdi>") >= 4
    assert not re.search("\u202e[^<]*</(?!bdi)", shown)
