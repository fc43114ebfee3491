"""Passes of Llamas and Qwens are one call of kernels, which agrees with plain passes."""

import random

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from decoders import ModelPair, catalog, generate
from decoders.engine.lowering.program import Program
from decoders.engine.models.packed import PackedModel
from decoders.engine.passes import PackedPasses
from decoders.tree import TokenTree
from tests import zoo
from tests.models import FAMILIES, build, build_tokenizer, halved

pytest.importorskip("numba")
KNOWN = "llama", "qwen3", "qwen2", "mistral", "olmo2", "mixed"
PROMPTS = [[5, 6, 7, 8], [3], [9] * 12, list(range(20, 60))]


def model_of(family):
    if family == "mixed":
        kinds = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}
        return halved(build("qwen3", torch.float32, use_sliding_window=True, **kinds))
    known = family in FAMILIES
    return halved(build(family, torch.float32) if known else zoo.build_pair(family)[0].float())


def pass_of(model):
    """What carries out the passes of a model once it has run."""
    packed = PackedModel(model, "target")
    engine, tree = packed.engine(), TokenTree([1, 2, 3])
    engine.admit(tree, 3)
    engine.run([(tree, tree.trunk[-1:])])
    return packed.program(1), packed.forward.why


@pytest.mark.parametrize("family", KNOWN)
def test_these_are_one_call(family):
    run, why = pass_of(model_of(family))
    assert isinstance(run, Program)
    assert not why


def test_angles_that_are_a_product_of_matrices(monkeypatch):
    """As transformers has them up to and including 5.18: the kernels were never used there.

    A machine with a GPU, which had 5.17, showed it."""

    def angles(self, x, position_ids):
        speeds = self.inv_freq[None, :, None].expand(position_ids.shape[0], -1, 1)
        speeds = speeds.to(dtype=torch.float, device=x.device)
        turns = (speeds @ position_ids[:, None, :].float()).transpose(1, 2)
        both = torch.cat((turns, turns), dim=-1)
        scale = self.attention_scaling
        return (both.cos() * scale).to(dtype=x.dtype), (both.sin() * scale).to(dtype=x.dtype)

    monkeypatch.setattr(LlamaRotaryEmbedding, "forward", torch.no_grad()(angles))
    model = model_of("llama")
    run, why = pass_of(model)
    assert isinstance(run, Program)
    assert not why
    for found, plain in both_ways(PackedModel(model, "target")):
        torch.testing.assert_close(found, plain, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("family", ["gpt2", "gemma2"])
def test_others_run_module_by_module(family):
    run, why = pass_of(model_of(family))
    assert run is None
    assert why


def test_weights_that_float16_does_not_hold():
    run, why = pass_of(build(dtype=torch.float32))
    assert run is None
    assert "float16" in why


def both_ways(packed, layers=(), turns=8, seed=0):
    """Yield the outputs of random passes over two requests, by kernels and by modules."""
    draw, engine = random.Random(seed), PackedPasses(packed)
    trees = [TokenTree(draw.choices(range(60), k=k)) for k in (30, 3)]
    for tree in trees:
        engine.admit(tree, 60)
    for turn in range(turns):
        wants = []
        for tree in trees:
            tips = [tree.trunk[-1]]
            for _ in range(draw.randrange(6) if turn else 0):
                tips.append(tree.add(draw.choice(tips), draw.randrange(60)))
            new = [n for n in dict.fromkeys(tips) if n not in engine.caches[tree][0].row]
            if new:
                wants.append((tree, new))
        if wants:
            inputs = engine.pack(engine.feeds(wants, None))
            with torch.inference_mode():
                found, plain = (
                    run(**inputs._asdict(), features=layers)
                    for run in (packed.forward, packed.plain)
                )
            yield from zip(found, plain, strict=True)
        for tree in trees:
            if tree.tail:
                tree.keep([draw.choice([tree.trunk[-1], *tree.tail])])
        engine.arenas.sync([(engine.caches[t], t) for t in trees])


@pytest.mark.parametrize(("family", "layers"), [*zip(KNOWN, [(), (0, 1, -1)] * 3, strict=True)])
def test_chains_and_trees_agree_with_plain_passes(family, layers):
    packed = PackedModel(model_of(family), "target")
    for found, plain in both_ways(packed, layers):
        torch.testing.assert_close(found, plain, rtol=2e-4, atol=2e-4)


@pytest.fixture(scope="module")
def pair():
    target, draft = (
        model_of("llama"),
        halved(build(dtype=torch.float32, seed=1, num_hidden_layers=1)),
    )
    return ModelPair(target, draft, build_tokenizer())


@pytest.mark.parametrize(
    "decoder", ["multinomial", "speculative", "mtad", "dsbd", "beam_search", "traversal", "lookup"]
)
def test_the_same_tokens_alone_and_in_a_batch(pair, decoder):
    """In float32, and without an exception for near-ties: the passes have the same bits."""
    options = {"max_new_tokens": 12, "ignore_eos": True, "temperature": 0}
    together = generate(pair, PROMPTS, decoder, seed=[1, 2, 3, 4], **options)
    for seed, (prompt, found) in enumerate(zip(PROMPTS, together, strict=True), 1):
        assert generate(pair, prompt, decoder, seed=seed, **options).tokens == found.tokens


def test_speculation_has_the_tokens_of_greedy(pair):
    """Also where two tokens are nearly alike, because trees have the same bits as chains."""
    options = {"max_new_tokens": 40, "ignore_eos": True, "temperature": 0}
    expected = [r.tokens for r in generate(pair, PROMPTS, "greedy", **options)]
    for decoder in ("speculative", "specinfer", "spectr", "lookup"):
        if decoder in catalog:
            assert [r.tokens for r in generate(pair, PROMPTS, decoder, **options)] == expected
