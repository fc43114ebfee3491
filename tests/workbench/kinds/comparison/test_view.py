"""The panels of a run, finished or live."""

import json
from dataclasses import replace

import pytest

from workbench.kinds.comparison import Comparison
from workbench.kinds.comparison.results import LivePanels
from workbench.measuring import session
from workbench.runs.events import Ended, Finished, Progress
from workbench.show.panel import run_panels


def panels_of(run):
    return [json.loads(text) for text in run_panels(run)]


def test_a_finished_run_gives_a_panel_for_each_decoder(run):
    panels = panels_of(run)
    assert [p["decoder"] for p in panels] == run.settings["decoders"]
    for panel in panels:
        first = next(r for r in run.results if r.decoder == panel["decoder"])
        assert "".join(t["text"] for t in panel["tokens"]) == first.alone.text
        assert panel["status"] == "done"
        assert panel["state"] == "token limit reached"
        assert len(panel["clock"]) == len(panel["rounds"])  # for the race
        assert sum(panel["clock"]) == pytest.approx(
            first.metrics["seconds"], rel=0.1
        )  # a busy machine may pause between two rounds


def test_the_figures_of_a_panel_are_those_of_all_repeats(run):
    speed = panels_of(run)[1]["numbers"][0]
    assert speed["label"] == "tokens/s"
    assert speed["detail"].startswith("mean of 2 repeats · the first: 24 tokens in ")
    once = replace(run, results=[r for r in run.results if r.repeat == 0])
    assert "24 tokens in " in panels_of(once)[1]["numbers"][0]["detail"]


def test_claims_follow_the_settings(run):
    settings = {**run.settings, "speculative": {"lenience": 0.5}}
    changed = replace(run, study={**run.study, "settings": settings})
    claims = {p["decoder"]: p["claim"] for p in panels_of(changed)}
    assert claims["speculative"] == "changes the text"
    assert claims["greedy"] == "always the likeliest"
    assert claims["beam_search"] == "search"


def test_a_failure_is_shown_in_its_panel_alone(run):
    first, *rest = run.results
    broken = replace(run, results=[replace(first, error="<b>it broke</b>"), *rest])
    panels = panels_of(broken)
    assert panels[0]["status"] == "failed"
    assert panels[0]["error"] == "<b>it broke</b>"
    assert panels[0]["numbers"] == []
    assert all(p["status"] == "done" for p in panels[1:])


@pytest.fixture(scope="module")
def events(pair, unmetered):
    """The study, and what its session reports."""
    asked = {"decoders": ["speculative", "greedy"], "max_new_tokens": 12, "repeats": 2}
    study = Comparison.from_json({"prompt": "aba ab", "settings": asked})
    return study, list(session.run(pair, study, meter=unmetered))


def live(panels):
    return {p["decoder"]: p for p in map(json.loads, panels.value()["panels"])}


def test_live_panels_follow_a_run_to_its_end(events):
    study, reported = events
    panels = LivePanels(study)
    assert [(name, p["state"]) for name, p in live(panels).items()] == [
        ("greedy", "waiting"),
        ("speculative", "waiting"),
    ]
    panels.update(reported[0])
    assert live(panels)["greedy"]["state"] == "reading the prompt"
    *rest, ended = reported[1:]
    for event in rest:
        panels.update(event)
    assert isinstance(ended, Ended)
    shown = [json.loads(p) for p in panels.value()["panels"]]
    for panel, last in zip(shown, panels_of(ended.run), strict=True):
        kept = ("title", "tokens", "rounds", "status", "error")
        assert {name: panel[name] for name in kept} == {name: last[name] for name in kept}
        assert panel["state"] == "repeat 2, timing 3 of 3"
        speed = next(n for n in panel["numbers"] if n["name"] == "speed")
        assert speed["detail"].startswith("mean of 2 repeats")


def test_only_panels_that_changed_are_sent_again(events):
    """Every finished panel, 60 kB, was sent ten times a second while the next decoder was timed."""
    study, reported = events
    panels, shown = LivePanels(study), [None, None]
    for event in reported[:-1]:
        panels.update(event)
        changes = panels.changes()["panels"]
        shown = [new or old for new, old in zip(changes, shown, strict=True)]
        assert shown == panels.value()["panels"]
        assert changes.count(None) >= 1 or event is reported[0]
    assert panels.changes()["panels"] == [None, None]


def test_a_later_repeat_keeps_the_text_of_the_first(events):
    study, reported = events
    panels = LivePanels(study)
    for event in reported:
        if not isinstance(event, Ended) and event.at.repeat == 0:
            panels.update(event)
    before = live(panels)
    later = next(e for e in reported if not isinstance(e, Ended) and e.at.repeat == 1)
    panels.update(later)
    assert live(panels) == {**before, "greedy": {**before["greedy"], "state": "repeat 2"}}


def test_the_texts_of_later_repeats_can_be_read(run):
    """They could not be seen."""
    for panel in panels_of(run):
        second = next(r for r in run.results if r.decoder == panel["decoder"] and r.repeat == 1)
        assert panel["others"] == [{"seed": second.seed, "text": second.alone.text}]


def test_while_it_runs_a_panel_has_only_the_refused_drafts_of_its_rounds(events):
    study, reported = events
    done = next(e for e in reported if isinstance(e, Finished) and e.at.decoder == "speculative")
    sample = done.result.alone
    panels = LivePanels(study)
    panels.update(
        Progress(done.at, len(sample.tokens), 12, sample.tokens, sample.rounds, False, None)
    )
    shown = live(panels)["speculative"]
    assert shown["state"] == f"token {len(sample.tokens)} of 12"
    assert not any(t["alternatives"] for t in shown["tokens"])
    panels.update(done)
    assert all(t["alternatives"] for t in live(panels)["speculative"]["tokens"])
    fates = [t["fate"] for r in shown["rounds"] for t in r["trials"]]
    assert set(fates) <= {"rejected", "discarded"}
    assert len(fates) == sum(
        t.fate in ("rejected", "discarded") for r in sample.rounds for t in r.trials
    )
