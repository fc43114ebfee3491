"""The layer for multi-token prediction that a target brings along, in float32.

The experts of transformers have no products in float64."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from decoders import InputError, generate, load_pair
from decoders.engine.protocols import Features
from decoders.tree import TokenTree
from tests.models import build, build_tokenizer

PROMPT, DRAFTS = [5, 6, 7, 8, 40], [2, 11, 5, 60]
LAYERS = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny GLM-4-MoE with one such layer, whose weights have the names of published ones."""
    torch.manual_seed(0)
    config = Glm4MoeConfig(
        vocab_size=67, hidden_size=32, intermediate_size=48, moe_intermediate_size=16,
        num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=1,
        num_nextn_predict_layers=1, max_position_embeddings=512, initializer_range=0.3,
        eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    model = Glm4MoeForCausalLM(config).eval()
    path = tmp_path_factory.mktemp("mtp")
    model.save_pretrained(path)
    build_tokenizer().save_pretrained(path)
    weights = load_file(path / "model.safetensors")
    generator = torch.Generator().manual_seed(1)
    own = {
        name.replace(f"layers.{LAYERS - 1}.", f"layers.{LAYERS}."): 0.3
        * torch.randn(weight.shape, generator=generator)
        for name, weight in weights.items()
        if f"layers.{LAYERS - 1}." in name
    }
    ones = {"enorm": (32,), "hnorm": (32,), "shared_head.norm": (32,)}
    own |= {f"model.layers.{LAYERS}.{name}.weight": torch.ones(size) for name, size in ones.items()}
    own[f"model.layers.{LAYERS}.eh_proj.weight"] = 0.3 * torch.randn(32, 64, generator=generator)
    save_file(weights | own, path / "model.safetensors", {"format": "pt"})
    return path


@pytest.fixture(scope="module")
def pair(folder):
    with pytest.MonkeyPatch.context() as patch:
        # The layer numbers of the published sizes stand there (glm4_moe, modular_glm4_moe.py).
        pattern = [rf"model\.layers\.{LAYERS}.*"]
        patch.setattr(Glm4MoeForCausalLM, "_keys_to_ignore_on_load_unexpected", pattern)
        yield load_pair(folder, "mtp", dtype="float32")


def by_transformers(target, layers):
    """Logits at the last token and at each draft, one `forward_layer` a token with its cache."""
    with torch.inference_mode():
        found = target(torch.tensor([PROMPT]), use_cache=False, output_hidden_states=True)
        states = found.hidden_states[-1][:, :-1]
        cache = MtpCache(config=target.config.get_mtp_config())
        out, tokens, position = [], PROMPT[1:], 1
        for token in [*DRAFTS, None]:
            places = torch.arange(position, position + len(tokens))[None]
            ids = torch.tensor([tokens])
            states = layers.forward_layer(0, states, places, cache, input_ids=ids)[:, -1:]
            out.append(layers._project_to_logits(states)[0, -1])
            position += len(tokens)
            tokens = [token]
    return torch.stack(out)


def test_it_proposes_what_transformers_says(pair):
    head = pair.draft
    assert head.reads == (-1,)
    tree, passes = TokenTree(PROMPT), head.engine(20)
    passes.admit(tree, 20)
    with torch.inference_mode():
        found = pair.target(torch.tensor([PROMPT]), use_cache=False, output_hidden_states=True)
        passes.learn(tree, Features(range(4), (found.hidden_states[-1][0, :-1],)))
    node, rows = tree.trunk[-1], []
    for token in [*DRAFTS, None]:
        (answer,) = passes.run([(tree, [node])])
        rows.append(answer.logits[0])
        node = node if token is None else tree.add(node, token)
    layers = MtpModel.from_pretrained(pair.target).eval()
    expected = by_transformers(pair.target, layers)
    torch.testing.assert_close(torch.stack(rows), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["speculative", "mcss"])
def test_decoders_take_it(pair, name):
    options = {"max_new_tokens": 12, "temperature": 0.0}
    together = generate(pair, [PROMPT, [9, 3]], name, **options)
    for prompt, result in zip([PROMPT, [9, 3]], together, strict=True):
        assert result.metrics.draft_calls
        assert result.tokens == generate(pair, prompt, "greedy", **options).tokens


def test_the_target_stays_as_it_is(folder, monkeypatch):
    """Its rotary frequencies were cast with the head, and its text was that of another model."""
    pattern = [rf"model\.layers\.{LAYERS}.*"]
    monkeypatch.setattr(Glm4MoeForCausalLM, "_keys_to_ignore_on_load_unexpected", pattern)
    ids = torch.arange(60)[None]
    alone, beside = (load_pair(folder, draft, dtype="bfloat16").target for draft in (None, "mtp"))
    with torch.inference_mode():
        assert torch.equal(alone(ids).logits, beside(ids).logits)
    assert type(alone.lm_head) is type(beside.lm_head)
    for one, other in zip(alone.buffers(), beside.buffers(), strict=True):
        assert one.dtype == other.dtype


def test_a_target_without_such_layers_is_refused(tmp_path):
    build().save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(InputError, match="has no layers for multi-token prediction"):
        load_pair(tmp_path, "mtp")
