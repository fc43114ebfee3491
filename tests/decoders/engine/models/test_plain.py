"""Models that run with their own cache: the logits of passes over whole texts, in every decoder.

Whatever the trees did before."""

import random

import pytest
import torch

from decoders import InputError, ModelPair, catalog, generate
from decoders.engine.models.plain import Following, PlainModel, PlainPasses
from decoders.tree import TokenTree
from tests import zoo
from tests.histories import histories
from tests.models import build, build_pair

WAYS = {
    "own cache": Following(),
    "one token at a time": Following(several=False),
    "whole texts": Following(cached=False),
}
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


def plainly(pair, following=WAYS["own cache"]):
    """The same pair, its models run one request at a time."""
    for role, model in pair.packed.items():
        pair.packed[role] = PlainModel(
            model.model, role, pair.vocabulary, following, "a test asks for it"
        )
    return pair


@pytest.fixture(scope="module")
def packed():
    return build_pair(eos=0)


@pytest.fixture(scope="module")
def plain():
    return plainly(build_pair(eos=0))


def logits_after(model, tokens):
    with torch.inference_mode():
        return model(torch.tensor([tokens]), use_cache=False).logits[0, -1]


@pytest.mark.parametrize("kind", KINDS)
def test_any_history_of_a_tree_gives_the_logits_of_whole_texts(kind):
    """Two requests in turn, chains and trees, several tips kept, prompts in chunks."""
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
            if answer.logits is None:
                continue
            for node, row in zip(nodes, answer.logits, strict=True):
                path = tree.lineage(node)
                seen[tree] |= set(path)
                torch.testing.assert_close(
                    row, logits_after(model, [tree.tokens[n] for n in path]), rtol=1e-5, atol=1e-5
                )
                answered += 1
    assert answered > 30


@pytest.mark.parametrize("name", catalog)
def test_every_decoder_writes_the_tokens_of_packed_passes(packed, plain, name):
    options = {"max_new_tokens": 14, "seed": 3, "top_k": 20, "top_p": 0.95}
    # by default its draft follows the clock
    method = catalog[name](draft_length=2) if name == "speculative_beam_search" else name
    expected, found = (generate(pair, PROMPTS, method, **options) for pair in (packed, plain))
    assert [r.tokens for r in found] == [r.tokens for r in expected]
    assert [r.metrics.target_calls for r in found] == [r.metrics.target_calls for r in expected]
    assert [r.rounds[-1].nodes for r in found] == [r.rounds[-1].nodes for r in expected]


@pytest.mark.parametrize("way", WAYS)
def test_a_chain_takes_one_pass_where_the_cache_can_be_rewound(way):
    pair = plainly(build_pair(), WAYS[way])
    metrics = generate(
        pair, [5, 6, 7], catalog["speculative"](draft_length=3), max_new_tokens=24, ignore_eos=True
    ).metrics
    if way == "one token at a time":
        assert metrics.target_passes > 2 * metrics.target_calls
    else:
        assert metrics.target_passes == metrics.target_calls
    tree = generate(
        pair, [5, 6, 7], catalog["specinfer"](expansion=(2, 2)), max_new_tokens=24, ignore_eos=True
    ).metrics
    assert tree.target_passes > tree.target_calls


@pytest.mark.parametrize("name", ["gemma2", "qwen3_5_text"])
def test_few_passes_where_it_cannot(name):
    """A few accepted tokens are read again with the next draft, not in a pass of their own."""
    pair = plainly(ModelPair(*zoo.build_pair(name)), Following(attention="eager"))
    metrics = generate(
        pair, [5, 6, 7], catalog["speculative"](draft_length=3), max_new_tokens=60, ignore_eos=True
    ).metrics
    assert metrics.target_calls <= metrics.target_passes < 1.4 * metrics.target_calls


def test_the_rows_of_windows_stop_growing():
    """All layers have a window of 16 tokens; in layers without one, rows grow with the text."""
    peaks = {}
    for layers in ("sliding_attention", "full_attention"):
        model, _ = zoo.build_pair("gemma2", layer_types=[layers] * 2, num_hidden_layers=2)
        following = Following(attention="eager")
        pair = ModelPair(model, None)
        pair.packed["target"] = PlainModel(model, "target", None, following, "a test asks for it")
        peaks[layers] = [
            generate(
                pair, list(range(20)), "greedy", max_new_tokens=n, ignore_eos=True
            ).metrics.peak_cache_bytes
            for n in (20, 70)
        ]
    assert peaks["sliding_attention"][0] == peaks["sliding_attention"][1]
    assert peaks["full_attention"][1] > 2 * peaks["full_attention"][0]


def test_weights_are_charged_for_every_pass():
    pair = plainly(build_pair(), WAYS["whole texts"])
    alone = generate(pair, [5, 6, 7], "greedy", max_new_tokens=9, ignore_eos=True).metrics
    both = generate(pair, [[5, 6, 7], [4]], "greedy", max_new_tokens=9, ignore_eos=True)
    assert alone.bytes_read == both[0].metrics.bytes_read == 9 * pair.packed["target"].weight_bytes


@pytest.mark.parametrize("options", [{"padding": "both"}, {"max_cache_bytes": 10**9}])
def test_what_only_packed_passes_do_is_refused(options):
    pair = plainly(build_pair())
    with pytest.raises(
        InputError,
        match=f"^{next(iter(options))} is for packed passes, and the target model runs one request",
    ):
        generate(pair, PROMPTS, "greedy", **options)


def test_the_engine_and_its_reason_are_said(caplog):
    pair = ModelPair(*zoo.build_pair("bloom"))
    assert (
        "target model BloomForCausalLM (bloom) runs with its own cache, one request at a "
        "time, because it has its own"
    ) in caplog.text
    assert pair.packed["target"].engine_name in caplog.text
    assert set(pair.plain) == {"target", "draft"}
    assert not build_pair().plain


def test_a_model_that_forgets_its_state_reads_one_token_at_a_time():
    """After a cached text Mamba reads several tokens as a new text: silently wrong tokens."""
    pair = ModelPair(zoo.build_pair("mamba")[0], None)
    assert pair.packed["target"].following == Following(several=False, attention=None)


def test_positions_of_padding_are_not_counted():
    """RoBERTa's first two positions belong to padding: a text that used all raised an
    IndexError."""
    model = zoo.build_pair("roberta", pad_token_id=1)[0]
    pair = ModelPair(model, None)
    assert pair.positions == 94
    assert len(generate(pair, [5] * 30, "greedy", max_new_tokens=64, ignore_eos=True).tokens) == 64


COUNTING = [
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "camembert",
    "data2vec-text",
    "xmod",
]


@pytest.mark.parametrize("model_type", COUNTING)
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
