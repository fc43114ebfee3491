"""Passes of Llamas and Qwens are one call of kernels, which agrees with plain passes."""

from itertools import cycle

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from decoders import ModelPair, generate
from decoders.engine import models
from decoders.engine.loading.admission import agree
from decoders.engine.lowering.program import Program
from decoders.engine.models.packed import PackedModel
from decoders.engine.passes import PackedPasses
from decoders.tree import TokenTree
from tests import zoo
from tests.decoders.engine.lowering.test_groups import passes
from tests.models import FAMILIES, build, build_tokenizer, halved
from tests.pairwise import part

pytest.importorskip("numba")
KNOWN = "llama", "qwen3", "qwen2", "mistral", "olmo2", "mixed", "phi3", "gemma2"
DTYPES = torch.float32, torch.bfloat16
PROMPTS = [[5, 6, 7, 8], [3], [9] * 12, list(range(20, 60))]


def model_of(family, dtype=torch.float32):
    """A small model with weights that bfloat16 holds. Phi-3's products have parts, whole blocks."""
    if family == "mixed":
        kinds = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}
        model = build("qwen3", torch.float32, use_sliding_window=True, **kinds)
    elif family in FAMILIES:
        model = build(family, torch.float32)
    else:
        whole = {"num_key_value_heads": 4, "intermediate_size": 64} if family == "phi3" else {}
        model = zoo.build_pair(family, **whole)[0].float()
    speeds = dict(model.named_buffers())
    model = halved(model).to(dtype)
    for name, buffer in model.named_buffers():
        buffer.data = speeds[name]  # as `from_pretrained` leaves them
    return model


def pass_of(model):
    """What carries out the passes of a model once it has run."""
    packed = PackedModel(model, "target")
    engine, tree = packed.engine(), TokenTree([1, 2, 3])
    engine.admit(tree, 3)
    engine.run([(tree, tree.trunk[-1:])])
    return packed.forward.serving(1), packed.forward.why


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


@pytest.mark.parametrize(
    ("make", "reason"),
    [(lambda: model_of("opt"), "layer_norm"), (lambda: build(dtype=torch.float32), "float16")],
)
def test_others_run_module_by_module(make, reason):
    run, why = pass_of(make())
    assert run is None
    assert reason in why


def both_ways(packed, layers=()):
    """Yield outputs of random passes over two requests, by kernels and by modules."""
    for inputs in passes(packed, turns=8):
        with torch.inference_mode():
            found = packed.forward(**inputs, features=layers)
            plain = packed.plain(**inputs, features=layers)
        yield from zip(found, plain, strict=True)


@pytest.mark.parametrize(("family", "layers"), [*zip(KNOWN, cycle([(), (0, 1, -1)]), strict=False)])
def test_chains_and_trees_agree_with_plain_passes(family, layers):
    packed = PackedModel(model_of(family), "target").ready()
    assert packed.engine_name == "packed passes, as a program of kernels"
    for found, plain in both_ways(packed, layers):
        torch.testing.assert_close(found, plain, rtol=2e-4, atol=2e-4)


@pytest.fixture(params=["copied", "large"])
def in_bfloat16(request, monkeypatch):
    """Makes a model of a family in bfloat16 whose weights are copied, or too large for that."""
    if request.param == "large":
        monkeypatch.setattr(models.packed, "COPIED_BYTES", 0)

    def made(family):
        packed = PackedModel(model_of(family, torch.bfloat16), "target").ready()
        assert packed.engine_name == "packed passes, as a program of kernels"
        assert (packed.copied_bytes > 0) == (request.param == "copied")
        return packed

    return made


@pytest.mark.parametrize("family", KNOWN)
def test_passes_in_bfloat16_round_where_the_model_rounds(family, in_bfloat16):
    """But for attention, which rounds elsewhere.

    In bfloat16, in which most models are loaded, all of them ran module by module; then those of
    more than 1 GiB, whose weights are not copied."""
    packed = in_bfloat16(family)
    for found, plain in both_ways(packed):
        assert found.dtype == torch.bfloat16
        assert (found - plain).float().norm() <= 0.03 * plain.float().norm()
        assert all(agree(*rows, torch.bfloat16) for rows in zip(found, plain, strict=True))


@pytest.mark.parametrize("family", part(KNOWN))
def test_a_row_has_the_same_bits_in_any_pass_in_bfloat16(family, in_bfloat16):
    """Among few and many tokens, beside other requests, and in a tree.

    In a pass of more than 192 tokens, of many requests, they had others than alone."""
    packed = in_bfloat16(family)
    text, rows = [(7 * i + 3) % 60 for i in range(33)], []
    for last, others in [(33, 0), (1, 0), (2, 0), (5, 0), (16, 0), (1, 4), (5, 4), (5, 16)]:
        engine = PackedPasses(packed)
        trees = [TokenTree(text[: len(text) - last] or text)]
        trees += [TokenTree([i + 1] * (1 + 3 * i)) for i in range(others)]
        for tree in trees:
            engine.admit(tree, 80)
        tip, siblings = trees[0].trunk[-1], []  # siblings: in the pass, but not seen
        if last < len(text):
            engine.run([(trees[0], [tip])])
            for token in text[-last:]:
                if others:
                    siblings.append(trees[0].add(tip, token + 1))
                tip = trees[0].add(tip, token)
        wants = [(trees[0], [*siblings, tip]), *((tree, [tree.trunk[-1]]) for tree in trees[1:])]
        answers = engine.run(wants[::-1])
        rows.append(answers[-1].rows[answers[-1].part][-1])
    assert all(torch.equal(row, rows[0]) for row in rows)


@pytest.fixture(scope="module")
def pair():
    return pair_of(torch.float32)


def pair_of(dtype):
    draft = halved(build(dtype=torch.float32, seed=1, num_hidden_layers=1)).to(dtype)
    return ModelPair(model_of("llama", dtype), draft, build_tokenizer())


@pytest.mark.parametrize(
    "decoder", ["multinomial", "speculative", "mtad", "dsbd", "beam_search", "traversal", "lookup"]
)
def test_the_same_tokens_alone_and_in_a_batch(pair, decoder):
    """In float32, and without an exception for near-ties: the passes have the same bits."""
    options = {"max_new_tokens": 12, "ignore_eos": True, "temperature": 0}
    together = generate(pair, PROMPTS, decoder, seed=[1, 2, 3, 4], **options)
    for seed, (prompt, found) in enumerate(zip(PROMPTS, together, strict=True), 1):
        assert generate(pair, prompt, decoder, seed=seed, **options).tokens == found.tokens


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_speculation_has_the_tokens_of_greedy(dtype):
    """Also where two tokens are nearly alike, because trees have the same bits as chains.

    In bfloat16 many are: plain passes gave other tokens in a tree than in a chain."""
    pair = pair_of(dtype)
    options = {"max_new_tokens": 40, "ignore_eos": True, "temperature": 0}
    expected = [r.tokens for r in generate(pair, PROMPTS, "greedy", **options)]
    assert expected == [generate(pair, prompt, "greedy", **options).tokens for prompt in PROMPTS]
    for decoder in ("speculative", "specinfer", "spectr", "lookup"):
        assert [r.tokens for r in generate(pair, PROMPTS, decoder, **options)] == expected
