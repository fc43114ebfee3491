"""What the components for other apps take, and what they refuse."""

import json

import pytest

from decoders import InputError
from workbench.components import DraftTree, Race, TokenStrip, compare
from workbench.runs.store import recordings


def test_a_run_of_several_decoders_becomes_their_panels(pair):
    run = compare(pair, "Once", ["speculative", "greedy"], max_new_tokens=4, timings=1)
    assert [r.decoder for r in run.results] == ["greedy", "speculative"]
    for component in (TokenStrip, DraftTree, Race):
        panels = map(json.loads, component().postprocess(run)["panels"])
        assert [panel["decoder"] for panel in panels] == ["greedy", "speculative"]
    assert TokenStrip(run).value == TokenStrip().postprocess(run)
    assert DraftTree(run, decoder="speculative").value["decoder"] == "speculative"
    assert Race(None).value is None


@pytest.mark.parametrize("component", [TokenStrip, DraftTree, Race])
def test_anything_else_is_refused_in_a_sentence(component):
    with pytest.raises(InputError, match="shows a run, which `compare` makes, not dict"):
        component({"panels": []})
    batch = next(r.run for r in recordings() if r.run.kind == "batch")
    with pytest.raises(InputError, match="of several decoders, not of the kind batch"):
        component(batch)


def test_settings_that_cannot_be_used_are_a_sentence_before_any_work(pair):
    for asked in ({"decoders": ["gredy"]}, {"decoders": ["greedy"], "temprature": 1}):
        with pytest.raises(InputError):
            compare(pair, "Once", **asked)
