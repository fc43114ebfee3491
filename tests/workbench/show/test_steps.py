"""How it works, told by a real round."""

from dataclasses import replace

from decoders import Fate
from tests.workbench.conftest import finished
from workbench.page.parts import words
from workbench.runs.record import Run
from workbench.show.steps import four_steps
from workbench.studies.comparison import Comparison
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
    drafted = [t for t in steps[0].parts if not isinstance(t, str)]
    assert drafted == [t for t in round_.trials if t.fate in (Fate.ACCEPTED, Fate.REJECTED, Fate.DISCARDED)]
    refused = next(t for t in drafted if t.fate == Fate.REJECTED)
    assert refused.u >= refused.accept_probability
    assert f"{refused.u:.3g}" in "".join(part for part in steps[2].parts if isinstance(part, str))
    kept = sum(t.fate == Fate.ACCEPTED for t in drafted)
    assert f"So one pass gave {kept + 1} tokens" in "".join(p for p in steps[3].parts if isinstance(p, str))


def test_a_run_without_drafts_has_no_steps(pair, unmetered, batch_run):
    assert four_steps(decoded(pair, unmetered, ["greedy", "beam_search"])) == ("", [])
    assert four_steps(batch_run) == ("", [])
    assert words.how_it_works(batch_run) == ""


def test_tokens_in_the_steps_stay_text(pair, unmetered):
    run = decoded(pair, unmetered, ["speculative"])
    [result] = run.results
    hostile = "<img src=x onerror=alert(1)>\u202e\x00👩‍👩‍👧"
    rounds = [replace(r, trials=[replace(t, text=hostile) for t in r.trials]) for r in result.alone.rounds]
    run = replace(run, results=[replace(result, samples=[replace(result.alone, rounds=rounds)])])
    shown = words.how_it_works(run)
    assert "<img" not in shown
    assert shown.count("<bdi>") == shown.count("\u202e") > 0  # a direction does not leave its token
