"""The contents of a single panel."""

import json

from decoders import catalog
from workbench.runs.events import At, Progress
from workbench.runs.record import Agreement
from workbench.show.panel import PROMPT_SHOWN, Panel, badge
from workbench.studies.schemes import ALONE


def test_claims_follow_the_settings_before_there_is_a_result():
    lenient = catalog["speculative"](lenience=0.5)
    for panel in (Panel.waiting(lenient, "Once", 1.0), Panel.running(lenient, "Once", 1.0)):
        assert json.loads(panel.to_json())["claim"] == "changes the text"


def test_badges():
    same = Agreement("greedy", 1, 0, noise=1e-6, dtype="float32")
    near = Agreement("greedy", 1, 1, 4, 2e-7, 1e-6, True, "float32")
    far = Agreement("greedy", 1, 1, 4, 0.7, 1e-6, False, "float32")
    unknown = Agreement("greedy", 1, 1, 4, None, None, False, "float32")
    assert badge(same)["text"] == "✓ identical to Greedy"
    assert (
        badge(near)["text"] == "≠ differs at token 5 (near-tie: target gap 2.0e-07 nats, float32)"
    )
    assert badge(far)["text"] == "≠ differs at token 5 (target gap 0.700 nats)"
    assert badge(far)["kind"] == badge(unknown)["kind"] == "differs"
    assert badge(Agreement("greedy", 4, 2))["text"] == "≠ differs"  # where is not known


def test_a_long_prompt_is_cut_on_the_left():
    panel = json.loads(Panel.waiting(catalog["greedy"](), "x" * 1000 + "end", 1.0).to_json())
    assert panel["prompt"].endswith("end")
    assert len(panel["prompt"]) == PROMPT_SHOWN + 1


def test_a_decoder_at_work_says_how_fast_it_is_so_far():
    at = At("greedy", 0, 1, ALONE, 0, 1)
    panel = Panel.running(
        catalog["greedy"](), "Once", 1.0, Progress(at, 30, 64, [], [], False, None, 0.25)
    )
    assert json.loads(panel.to_json())["pace"] == "120 tokens/s so far"
    unknown = Panel.running(
        catalog["greedy"](), "Once", 1.0, Progress(at, 30, 64, [], [], False, None)
    )
    assert json.loads(unknown.to_json())["pace"] == ""
