"""Hidden states: those of transformers for the whole text, for every node that a pass feeds.

However passes are made."""

import random
from itertools import cycle

import pytest
import torch

from decoders import InputError
from decoders.engine.loading.admission import prepared
from decoders.engine.models.packed import PackedModel
from decoders.engine.passes import PaddedPasses
from decoders.tree import TokenTree
from tests import zoo
from tests.decoders.engine.test_graphs import kernels  # noqa: F401 - a fixture
from tests.models import FAMILIES, build, whole_softmax
from tests.pairwise import part

LAYERS = 0, 1, -1  # the embedding, what enters the second layer, what comes after the final norm
WINDOWED = "mistral", "gemma3_text"
PLAIN = "mamba", "bloom"  # recurrent; with an attention of its own: both compute parts in float32
PROMPTS = [[5, 6, 7, 8], [3], list(range(20, 60))]


def model_of(family: str, dtype: torch.dtype = torch.float64):
    return build(family, dtype) if family in FAMILIES else zoo.build_pair(family)[0].to(dtype)


def by_transformers(model, text):
    with torch.inference_mode(), whole_softmax():
        states = model(
            torch.tensor([text]), use_cache=False, output_hidden_states=True
        ).hidden_states
    return [states[layer][0] for layer in LAYERS]


def features_agree(engine, model, tolerance, chunk=None, layers=LAYERS):
    """Three requests: prompts, drafts of chains and trees, rollbacks.

    Every node that is fed is looked at, once and for all."""
    draw, trees, told = random.Random(0), [TokenTree(prompt) for prompt in PROMPTS], 0
    for tree in trees:
        engine.admit(tree, 60)
    for turn in range(6):
        wants = [] if turn else [(tree, tree.trunk[-1:]) for tree in trees]
        for tree in trees if turn else ():
            tips = [tree.trunk[-1]]
            for _ in range(draw.randrange(1, 5)):
                tips.append(tree.add(draw.choice(tips), draw.randrange(60)))
            wants.append((tree, tips[1:]))
        waiting = wants
        while waiting:
            answers = engine.run(waiting, chunk, layers)
            for (tree, _), answer in zip(waiting, answers, strict=True):
                for place, node in enumerate(answer.features.nodes):
                    text = [tree.tokens[n] for n in tree.lineage(node)]
                    theirs = by_transformers(model, text)
                    for ours, their in zip(answer.features.states, theirs, strict=True):
                        torch.testing.assert_close(
                            ours[place], their[-1], rtol=tolerance, atol=tolerance
                        )
                    told += 1
            waiting = [
                want for want, answer in zip(waiting, answers, strict=True) if answer.part is None
            ]
        for tree, nodes in wants:
            tree.keep([draw.choice(list(nodes))] if turn else [tree.trunk[-1]])
    assert told >= sum(map(len, PROMPTS)) + 15
    for tree in trees:
        engine.release(tree)


@pytest.mark.parametrize(
    ("family", "dtype"),
    part(zip([*FAMILIES, *WINDOWED, *PLAIN], cycle([torch.float64, torch.float32]))),
    ids=str,
)
def test_they_are_those_of_transformers(family, dtype):
    """Also while prompts are read in chunks."""
    model = model_of(family, dtype)
    ours = prepared(model, "target")
    ours.refuse_features(LAYERS)
    tolerance = 2e-4 if dtype == torch.float32 else 1e-5 if family in PLAIN else 1e-9
    for chunk in (None, 7):
        features_agree(ours.engine(60), model, tolerance, chunk)
    if isinstance(ours, PackedModel):
        assert "as a program" in ours.engine_name or "(" in ours.engine_name


def test_a_layer_that_the_target_has_not_is_named():
    with pytest.raises(InputError, match="has hidden states 0 to 2, and 9 was asked for"):
        PackedModel(build(), "target").refuse_features((9,))


@pytest.mark.parametrize("passes", ["plain", "program"])
def test_in_plain_passes_and_in_graphs(passes, kernels):  # noqa: F811
    model = build()
    features_agree(PackedModel(model, "target", passes=passes).engine(60), model, 1e-9)


def test_in_padded_batches():
    model = build()
    features_agree(PaddedPasses(PackedModel(model, "target"), "both", 60), model, 1e-9)
