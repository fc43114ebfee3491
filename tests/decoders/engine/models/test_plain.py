"""Models that run with their own cache: the logits of passes over whole texts, in every decoder.

Whatever the trees did before."""

import random

import pytest
import torch

from decoders import InputError, ModelPair, generate
from decoders.engine.models.plain import Following, PlainModel, PlainPasses
from decoders.tree import TokenTree
from tests import zoo
from tests.histories import histories
from tests.models import build, build_pair
from tests.pairwise import part

# Kinds of cache: rewound; windowed; recurrent, which is copied; rewound, and token 1 has no
# position; recurrent that forgets if it gets several tokens.
KINDS = {
    "llama": (lambda: build(), Following()),
    "gemma2": (lambda: zoo.build_pair("gemma2")[0].double(), Following(attention="eager")),
    "lfm2": (lambda: zoo.build_pair("lfm2")[0].double(), Following()),
    "roberta": (lambda: zoo.build_pair("roberta", pad_token_id=1)[0].double(), Following()),
    "mamba": (
        lambda: zoo.build_pair("mamba")[0].double(),
        Following(several=False, attention=None),
    ),
}
PROMPTS = [[5, 6, 7, 8], [3], [9] * 12, list(range(20, 40))]


def logits_after(model, tokens):
    with torch.inference_mode():
        return model(torch.tensor([tokens]), use_cache=False).logits[0, -1]


@pytest.mark.parametrize("kind", KINDS)
def test_any_history_of_a_tree_gives_the_logits_of_whole_texts(kind):
    """Two requests in turn, chains and trees, several tips kept."""
    make, following = KINDS[kind]
    model, rng = make(), random.Random(0)
    engine = PlainPasses(PlainModel(model, "target", None, following, ""))
    trees = [TokenTree([1, 2, 3]), TokenTree(list(range(4, 24)))]
    seen = {tree: set() for tree in trees}
    for tree in trees:
        engine.admit(tree, 0)
    answered = 0
    for wants in histories(trees, 12, rng, seen):
        for (tree, nodes), answer in zip(wants, engine.run(wants, chunk=8), strict=True):
            for node, row in zip(nodes, answer.logits, strict=True):
                path = tree.lineage(node)
                seen[tree] |= set(path)
                expected = logits_after(model, [tree.tokens[n] for n in path])
                torch.testing.assert_close(row, expected, rtol=1e-5, atol=1e-5)
                answered += 1
    assert answered > 30


def test_the_engine_and_its_reason_are_said(caplog):
    pair = ModelPair(*zoo.build_pair("bloom"))
    assert (
        "target model BloomForCausalLM (bloom) runs with its own cache, one request at a "
        "time, because it has its own"
    ) in caplog.text
    assert pair.packed["target"].engine_name in caplog.text
    assert set(pair.plain) == {"target", "draft"}
    assert not build_pair().plain
    with pytest.raises(InputError, match=r"^max_cache_bytes is for packed passes, and the target"):
        generate(pair, [3], "greedy", max_cache_bytes=10**9)


def test_positions_of_padding_are_not_counted():
    """RoBERTa's first two positions belong to padding: a text that used all raised an
    IndexError."""
    model = zoo.build_pair("roberta", pad_token_id=1)[0]
    pair = ModelPair(model, None)
    assert pair.positions == 94
    assert len(generate(pair, [5] * 30, "greedy", max_new_tokens=64, ignore_eos=True).tokens) == 64


@pytest.mark.parametrize("model_type", part(["roberta", "data2vec-text", "xmod"], 3))
def test_positions_are_counted_without_padding(model_type):
    """RoBERTa and its like count positions without padding tokens, but all cached tokens.

    After a prompt with two of them every position was two too high, and the text another one."""
    language = {"default_language": "en_XX"} if model_type == "xmod" else {}
    target, draft = zoo.build_pair(model_type, pad_token_id=1, **language)
    pair = ModelPair(target, draft)
    assert pair.packed["target"].following.cached
    for name in ("greedy", "speculative", "specinfer"):
        for prompt in ([5, 1, 7, 1, 9], [1, 1], [4, 5, 1]):
            result = generate(pair, prompt, name, max_new_tokens=20, temperature=0, ignore_eos=True)
            zoo.assert_right(target, prompt, result)
