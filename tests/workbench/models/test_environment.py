"""The environment of a comparison."""

import torch

from decoders import ModelPair, generate, load_pair
from tests import zoo
from tests.models import build, build_tokenizer, halved
from workbench.models.keeper import environment


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
    own = "with its own cache, one request at a time, because it has its own attention"
    assert facts["target"]["engine"] == own
    assert facts["draft"]["engine"].startswith("packed passes, module by module (")
    assert "draft_knows" not in facts


def test_the_card_says_how_passes_run_and_why():
    """It gave the setting, "recorded", also where a recording had failed."""
    model = halved(build(dtype=torch.float32))
    plain = "module by module"
    for pair, says in (
        (ModelPair(model, None), "as a program of kernels"),
        (ModelPair(model, None, passes="plain"), plain),
        (ModelPair(build(), None), f"{plain} (the kernels are for float32 and bfloat16)"),
    ):
        generate(pair, [1, 2], "greedy", max_new_tokens=2)
        assert environment(pair)["target"]["engine"] == f"packed passes, {says}"


def test_how_much_of_the_targets_tokens_a_draft_knows_is_a_fact():
    tokenizers = (build_tokenizer(words) for words in (("th", "he"), ("t", "qu")))
    pair = ModelPair(build(), build(seed=1), *tokenizers)
    assert environment(pair)["draft_knows"] == f"{pair.known:.0%} of the target's tokens"


def test_copies_of_weights_are_counted(small):
    """At most one extra copy of the weights."""
    facts = environment(load_pair())
    for role in ("target", "draft"):
        assert 0 < facts[role]["copied_bytes"] <= facts[role]["bytes"]
