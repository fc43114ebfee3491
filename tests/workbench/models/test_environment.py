"""The environment of a comparison."""

import torch

from decoders import ModelPair, load_pair
from decoders.engine.recording.recorder import CannotRecord
from decoders.engine.recording.replay import Recorded
from tests import zoo
from tests.models import build, build_tokenizer
from workbench.models.environment import environment


def test_shipped_models_are_named_from_the_root_of_the_project():
    """Once the whole path was given, which told the server's folders in every export."""
    facts = environment(load_pair())
    assert facts["target"]["name"] == "Llama-Stories target"
    assert facts["draft"]["name"] == "Llama-Stories draft"
    assert facts["head"]["name"] == "Llama-Stories head"
    assert (facts["head"]["reads"], facts["head"]["layers"]) == ([2, 5, 7], 8)
    assert "head" not in environment(load_pair(draft="head"))  # it is the draft


def test_the_engine_of_each_model_and_its_reason_are_facts():
    facts = environment(ModelPair(zoo.build_pair("bloom")[0], build(dtype=torch.float32)))
    assert (
        facts["target"]["engine"]
        == "with its own cache, one request at a time, because it has its own attention"
    )
    assert facts["draft"]["engine"] == "packed passes, replayed from recorded operations"
    assert "draft_knows" not in facts


def test_passes_that_are_not_recorded_are_not_called_recorded(monkeypatch):
    """The card gave the setting, "recorded", also where a recording had failed."""

    def refuse(*_):
        raise CannotRecord("it reads values back")

    plain = ModelPair(build(), build(seed=1), passes="plain")
    monkeypatch.setattr(Recorded, "_made", refuse)
    for pair in (plain, ModelPair(build(), build(seed=1))):
        assert {environment(pair)[role]["engine"] for role in ("target", "draft")} == {
            "packed passes"
        }


def test_how_much_of_the_targets_tokens_a_draft_knows_is_a_fact():
    pair = ModelPair(
        build(), build(seed=1), build_tokenizer(("th", "he")), build_tokenizer(("t", "qu"))
    )
    assert environment(pair)["draft_knows"] == f"{pair.known:.0%} of the target's tokens"


def test_copies_of_weights_are_counted(small):
    """At most one extra copy of the weights."""
    facts = environment(load_pair())
    for role in ("target", "draft"):
        assert 0 < facts[role]["copied_bytes"] <= facts[role]["bytes"]
