"""What a panel is told."""

import dataclasses
import json

from workbench.runs.record import GreedyCheck
from workbench.show import strip as views


def test_a_finished_run_gives_a_panel_for_each_decoder(run):
    panels = [json.loads(text) for text in views.run_panels(run)]
    assert [p["decoder"] for p in panels] == run.settings["decoders"]
    for panel in panels:
        first = next(r for r in run.results if r.decoder == panel["decoder"])
        assert "".join(t["text"] for t in panel["tokens"]) == first.text
        assert panel["status"] == "done"


def test_claims_follow_the_settings(run):
    settings = {**run.settings, "speculative": {"lenience": 0.5}}
    panels = [json.loads(text) for text in views.run_panels(dataclasses.replace(run, settings=settings))]
    claims = {p["decoder"]: p["claim"] for p in panels}
    assert claims["speculative"] == "lossy"
    assert claims["greedy"] == "lossless"
    assert claims["beam_search"] == "search"


def test_a_failure_is_shown_in_its_panel_alone(run):
    first, *rest = run.results
    broken = dataclasses.replace(run, results=[dataclasses.replace(first, error="<b>it broke</b>"), *rest])
    panels = [json.loads(text) for text in views.run_panels(broken)]
    assert panels[0]["status"] == "failed"
    assert panels[0]["error"] == "<b>it broke</b>"
    assert panels[0]["numbers"] == []
    assert all(p["status"] == "done" for p in panels[1:])


def test_badges():
    same = GreedyCheck(True, None, None, 1e-6, False, "float32")
    near = GreedyCheck(False, 4, 2e-7, 1e-6, True, "float32")
    far = GreedyCheck(False, 4, 0.7, 1e-6, False, "float32")
    unknown = GreedyCheck(False, 4, None, None, False, "float32")
    assert views.badge(same)["text"] == "✓ identical to greedy"
    assert views.badge(near)["text"] == "≠ differs at token 5 (near-tie: target gap 2.0e-07 nats, float32)"
    assert views.badge(far)["kind"] == views.badge(unknown)["kind"] == "differs"


def test_a_long_prompt_is_cut_on_the_left():
    panel = views.panel("greedy", "x" * 1000 + "end", status="waiting")
    assert panel["prompt"].endswith("end")
    assert len(panel["prompt"]) == views.PROMPT_SHOWN + 1
