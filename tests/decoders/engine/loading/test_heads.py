"""Heads in each published spelling: every logit of five steps, against a slow computation."""

import pytest
import torch

from decoders import InputError, parameters
from decoders.engine.loading.heads import is_head, load_head
from decoders.engine.protocols import Features
from decoders.tree import TokenTree
from tests.heads import LAYER, Slow, drawn, layer_weights, rms, saved
from tests.models import VOCABULARY, build

WIDTH, OWN, LAYERS = 32, 20, 7
PROMPT = [5, 6, 7, 8, 40]


@pytest.fixture(scope="module")
def target():
    return build(num_hidden_layers=LAYERS)


def states_of(target, text):
    """hidden_states of transformers for a text, (layers + 1, tokens, H)."""
    with torch.inference_mode():
        found = target(torch.tensor([text]), use_cache=False, output_hidden_states=True)
    return [state[0] for state in found.hidden_states]


def eagle3(seed=0, width=16, reads=3, midlayer=True, **more):
    """Weights as SafeAILab/EAGLE's cnets.py has them, or `layers.0` as vLLM and speculators do."""
    weights = drawn(
        seed,
        **{
            "embed_tokens.weight": (VOCABULARY, width),
            "fc.weight": (width, reads * WIDTH),
            "norm.weight": (width,),
            "lm_head.weight": (OWN, width),
        },
    )
    prefix = "midlayer." if midlayer else "layers.0."
    weights |= layer_weights(prefix, seed + 1, width, joined=True, **more)
    ids = torch.arange(OWN) * 3 + 2
    t2d = torch.zeros(VOCABULARY, dtype=torch.bool)
    t2d[ids] = True
    return weights | {"d2t": ids - torch.arange(OWN), "t2d": t2d}


def slow_eagle3(weights, states, tokens, layers, drafts, prefix="midlayer.", **switches):
    """Logits at the last token and at each drafted one.

    `tokens` is the text; `states` are the target's for all of it but the last token. Row i is made
    of token i + 1 and state i. SafeAILab/EAGLE, model/cnets.py, `Model.forward`: `fc` over the
    states, then the layer; `lm_head(norm(h))`; the next step takes h.
    """
    own = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
    layer = Slow(own, True, switches.get("residual_normed", False))
    enter = []
    for i in range(len(tokens) - 1):
        parts = [states[k][i] for k in layers]
        if "fc_norm.0.weight" in weights:
            parts = [rms(x, weights[f"fc_norm.{j}.weight"]) for j, x in enumerate(parts)]
        joined = torch.cat(parts)
        if "input_norm.weight" in weights:
            joined = rms(joined, weights["input_norm.weight"])
        enter.append(weights["fc.weight"] @ joined)
    found, last = [], None
    for i, token in enumerate([*tokens[1:], *drafts]):
        state = enter[i] if i < len(enter) else last
        h = layer.row(weights["embed_tokens.weight"][token], state)
        normed = rms(h, weights["norm.weight"])
        last = normed if switches.get("next_normed") else h
        if i >= len(tokens) - 2:
            every = torch.full((VOCABULARY,), -torch.inf, dtype=torch.float64)
            ids = torch.arange(OWN) + weights["d2t"]
            every[ids] = weights["lm_head.weight"] @ normed
            found.append(every)
    return torch.stack(found)


def ours(head, states, tokens, drafts, layers):
    """The same through the passes of the head, one token drafted after another."""
    tree, passes = TokenTree(tokens), head.engine(400)
    passes.admit(tree, 400)
    seen = Features(list(range(len(tokens) - 1)), tuple(states[k][:-1] for k in layers))
    with torch.inference_mode():
        passes.learn(tree, seen)
    node, found = tree.trunk[-1], []
    for token in [*drafts, None]:
        (answer,) = passes.run([(tree, [node])])
        found.append(answer.logits[0])
        if token is not None:
            node = tree.add(node, token)
    passes.release(tree)
    return torch.stack(found)


DRAFTS = [2, 11, 5, 60]
TOP = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "draft_vocab_size": OWN}


def agrees(head, target, weights, layers, prefix="midlayer.", **switches):
    assert head.reads == layers
    states = states_of(target, PROMPT)
    torch.testing.assert_close(
        ours(head, states, PROMPT, DRAFTS, layers),
        slow_eagle3(weights, states, PROMPT, layers, DRAFTS, prefix, **switches),
        rtol=0,
        atol=1e-9,
    )


@pytest.mark.parametrize("binary", [False, True])
def test_eagle3_as_its_authors_write_it(target, tmp_path, binary):
    """What enters layers 2, L // 2 and L - 3 (SafeAILab/EAGLE, model/modeling_llama_kv.py)."""
    weights = eagle3()
    head = load_head(str(saved(tmp_path / "head", LAYER | TOP, weights, binary)), target)
    agrees(head, target, weights, (2, 3, 4))


def test_eagle3_whose_ids_are_read_as_sglang_reads_them(target, tmp_path):
    """srt/models/llama.py, `set_eagle3_layers_to_capture`: `val + 1`."""
    weights = eagle3()
    config = LAYER | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": OWN,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 3, 5]},
    }
    agrees(load_head(str(saved(tmp_path, config, weights)), target), target, weights, (1, 4, 6))


@pytest.mark.parametrize(("kind", "switches"), [
    ("qwen3", {}),
    ("llama", {"norm_before_residual": False}),
    ("qwen3", {"norm_before_fc": True}),
    ("llama", {"fc_norm": True}),
    ("llama", {"norm_output": True}),
], ids=str)  # fmt: skip
def test_eagle3_of_speculators(target, tmp_path, kind, switches):
    """Ids as they stand there; without the switch, the residual is normed (vLLM,
    transformers_utils/configs/speculators/algos.py, `update_eagle3`)."""
    weights = eagle3(midlayer=False, qk_norms=kind == "qwen3")
    if "norm_before_fc" in switches:
        weights |= drawn(7, **{"input_norm.weight": (3 * WIDTH,)})
    if "fc_norm" in switches:
        weights |= drawn(7, **{f"fc_norm.{i}.weight": (WIDTH,) for i in range(3)})
    config = {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.3.0",
        "draft_vocab_size": OWN,
        "eagle_aux_hidden_state_layer_ids": [1, 3, 6],
        "transformer_layer_config": LAYER | {"model_type": kind},
    } | switches
    agrees(
        load_head(str(saved(tmp_path, config, weights)), target), target, weights, (1, 3, 6),
        "layers.0.", residual_normed=switches.get("norm_before_residual", True),
        next_normed=switches.get("norm_output", False),
    )  # fmt: skip


def eagle(seed, bias, spelling="layers.0.", joiner="fc."):
    """Weights of EAGLE: no norm before the layer, none at the end, no output layer."""
    weights = drawn(seed, **{f"{joiner}weight": (WIDTH, 2 * WIDTH)})
    if bias:
        weights |= drawn(seed + 2, **{f"{joiner}bias": (WIDTH,)})
    return weights | layer_weights(spelling, seed + 1, WIDTH, joined=False)


def slow_eagle(weights, target, states, spelling, joiner):
    """SafeAILab/EAGLE, model/cnets1.py: the target's own output layer on the head's state."""
    own = {k.removeprefix(spelling): v for k, v in weights.items() if k.startswith(spelling)}
    layer, found, h = Slow(own, joined=False), [], None
    table, out = target.get_input_embeddings().weight, target.get_output_embeddings().weight
    for i, token in enumerate([*PROMPT[1:], *DRAFTS]):
        # hidden_states[-1] of transformers is what comes after the final norm.
        state = states[-1][i] if i < len(PROMPT) - 1 else h
        h = weights[f"{joiner}weight"] @ torch.cat([table[token], state])
        h = layer.row(table[token], h + weights.get(f"{joiner}bias", 0))
        if i >= len(PROMPT) - 2:
            found.append(out @ h)
    return torch.stack(found).detach()


@pytest.mark.parametrize(("config", "spelling", "joiner", "bias"), [
    ({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}, "layers.0.", "fc.", True),
    ({"architectures": ["LlamaForCausalLMEagle"]}, "model.layers.0.", "model.fc.", False),
    ({"speculators_model_type": "eagle"}, "transformer.", "fusion_fc.", True),
], ids=["authors", "sglang", "speculators"])  # fmt: skip
def test_eagle_reads_one_state(target, tmp_path, config, spelling, joiner, bias):
    layer = LAYER | {"hidden_size": WIDTH, "num_hidden_layers": 1}
    config = (
        config | {"transformer_layer_config": layer | {"model_type": "llama"}}
        if "speculators_model_type" in config
        else config | layer
    )
    weights = eagle(3, bias, spelling, joiner)
    folder = str(saved(tmp_path, config, weights))
    assert is_head(folder)
    head = load_head(folder, target)
    assert head.reads == (-1,)
    states = states_of(target, PROMPT)
    torch.testing.assert_close(
        ours(head, states, PROMPT, DRAFTS, (-1,)),
        slow_eagle(weights, target, states, spelling, joiner),
        rtol=0,
        atol=1e-9,
    )


def test_all_weights_of_the_target_stay_as_they_are(target, tmp_path):
    """A head shares embeddings with the target: those of the caller could still be trained."""
    weights = {k: v for k, v in eagle3(width=WIDTH).items() if k != "embed_tokens.weight"}
    config = LAYER | TOP | {"hidden_size": WIDTH}
    head = load_head(str(saved(tmp_path, config, weights)), target)
    table = target.get_input_embeddings().weight
    assert head.module.embed_tokens.weight.data_ptr() == table.data_ptr()
    assert table.requires_grad


@pytest.mark.parametrize(("change", "said"), [
    (lambda c, w: w.pop("fc.weight"), "no weights for fc.weight"),
    (lambda c, w: w.pop("midlayer.mlp.up_proj.weight"), "no weights for layers.0.mlp.up_proj"),
    (lambda c, w: w.update(eagle3(reads=2)), "reads 64 numbers .* states have 96"),
    (lambda c, w: c.update(hidden_size=24), "embeds 67 tokens in width 16, and 67 in width 24"),
    (lambda c, w: c.update(eagle_aux_hidden_state_layer_ids=[1, 2, 30]),
     r"layers \[1, 2, 30\], and the target has 7"),
    (lambda c, w: w.pop("d2t"), "proposes 20 tokens and does not say which"),
    (lambda c, w: w.update(d2t=w["d2t"] + 60), "tokens that the target does not have"),
    (lambda c, w: c.update(model_type="mamba"), "layers of the type mamba"),
    (lambda c, w: w.update({"embedding_layernorm.weight": torch.ones(16)}), "HASS"),
    (lambda c, w: w.update({"input_norm.weight": torch.ones(5)}), "norms the target's states"),
])  # fmt: skip
def test_a_head_that_does_not_fit_is_refused_in_one_sentence(target, tmp_path, change, said):
    config, weights = LAYER | TOP, eagle3()
    change(config, weights)
    folder = str(saved(tmp_path, config, weights))
    with pytest.raises(InputError, match=said) as refused:
        load_head(folder, target)
    assert str(refused.value).count(". ") == 0
    assert str(refused.value).endswith(".")


@pytest.mark.parametrize("change", [
    {"eagle_config": "x"},
    {"transformer_layer_config": "x"},
    {"eagle_aux_hidden_state_layer_ids": ["a", None]},
    {"architectures": [1], "draft_vocab_size": OWN},
    {"rope_theta": "x"},
    {"rope_parameters": {"rope_type": "nothing"}},
    {"hidden_size": None},
], ids=str)  # fmt: skip
def test_a_config_with_anything_in_it_is_one_sentence(target, tmp_path, change):
    """Most of these once ended in a traceback."""
    folder = str(saved(tmp_path, LAYER | TOP | change, eagle3()))
    try:
        load_head(folder, target)
    except InputError as error:
        assert str(error).endswith(".")  # noqa: PT017 - some of them do no harm


def test_no_pickle_is_opened_where_safetensors_are_asked_for(tmp_path):
    """The page promises to read safetensors alone, and looked into a pickle for names."""
    layer = LAYER | {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    folder = saved(tmp_path, layer | {"num_hidden_layers": 1}, eagle(3, False), binary=True)
    assert is_head(str(folder), None)
    assert not is_head(str(folder))
    assert parameters(str(folder))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_angles_are_not_rounded_with_the_weights(tmp_path, dtype):
    """At position 300 they were off by a radian, which only looks like poor acceptance."""
    target = build(num_hidden_layers=LAYERS)
    folder = str(saved(tmp_path, LAYER | TOP, eagle3()))
    text = [(7 * i) % VOCABULARY for i in range(300)]
    states = states_of(target, text)
    exact = load_head(folder, target)
    expected = ours(exact, states, text, DRAFTS, exact.reads)
    rounded = load_head(folder, target.to(dtype))
    found = ours(rounded, [state.to(dtype) for state in states], text, DRAFTS, exact.reads)
    finite = expected.isfinite()
    assert (found.double() - expected)[finite].abs().max() < 0.15 * expected[finite].std()


def test_a_broken_or_missing_file_is_named(target, tmp_path):
    folder = saved(tmp_path / "head", LAYER | TOP, eagle3())
    (folder / "model.safetensors").write_bytes(b"\x09\x00\x00\x00\x00\x00\x00\x00not json!")
    with pytest.raises(InputError, match="broken or incomplete weights file"):
        load_head(str(folder), target)
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"has no model\.safetensors or pytorch_model\.bin; name"):
        load_head(str(folder), target)
