"""Packed passes equal the model's own forward pass, whatever the trees did before.

They leave the model unchanged. Its first pass shows whether they can replace its own.
"""

import random

import pytest
import torch
import transformers
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from transformers import AutoModelForCausalLM

from decoders import InputError, ModelPair, generate
from decoders.engine.cache import Reach
from decoders.engine.models.packed import PackedModel
from decoders.engine.passes import PackedPasses
from decoders.tree import TokenTree
from tests import zoo
from tests.models import FAMILIES, VOCABULARY, build, plain_logits

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


class Check:
    """Several trees on one engine; answers are compared with plain passes over each lineage."""

    def __init__(self, model, prompts, rows, tolerance=None):
        self.tolerance = tolerance or TOLERANCE[model.dtype]
        self.model, self.engine = model, PackedPasses(PackedModel(model, "target"))
        self.trees = [TokenTree(prompt) for prompt in prompts]
        self.seen = {tree: set() for tree in self.trees}
        self.squeezes = self.growths = 0
        for tree in self.trees:
            self.engine.admit(tree, rows)

    def open_nodes(self, tree):
        """Live nodes that the model has not seen."""
        return [n for n in (*tree.trunk[-1:], *tree.tail) if n not in self.seen[tree]]

    def ask(self, wants, chunk=None):
        """Ask for the nodes of each tree in `wants`; returns whether each was answered."""
        arena = self.engine.arena
        move = type(arena).move
        arena.move = lambda *args: (
            setattr(self, "squeezes", self.squeezes + 1),
            move(arena, *args),
        )
        before = arena.rows
        answers = self.engine.run(wants, chunk)
        self.growths += arena.rows > before
        for (tree, nodes), answer in zip(wants, answers, strict=True):
            logits = answer.logits
            for node in nodes if logits is not None else ():
                self.seen[tree] |= set(tree.lineage(node))
            if len(self.engine.arenas.each) == 1:
                assert answer.cache_bytes == self.engine.rows_of(tree) * self.engine.model.row_bytes
            for node, row in zip(
                nodes, logits if logits is not None else (), strict=logits is not None
            ):
                plain = plain_logits(self.model, [tree.tokens[n] for n in tree.lineage(node)])
                torch.testing.assert_close(row, plain, rtol=self.tolerance, atol=self.tolerance)
        return [answer.logits is not None for answer in answers]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_packed_equals_plain(family, dtype):
    """Three requests of different lengths through drafts of chains and trees and rollbacks.

    Caches are squeezed and the arena grows."""
    check = decode_at_random(build(family, dtype), rounds=10)
    assert check.squeezes
    assert check.growths


WINDOWED = {  # all layers alike, or some; with and without sinks; layers that share keys and values
    "mistral": {"sliding_window": 7},
    "phi3": {"sliding_window": 1, "pad_token_id": 0},
    "gemma2": {"sliding_window": 5, "attn_logit_softcapping": 3.0, "attn_implementation": "eager"},
    "gemma3_text": {"sliding_window": 2},
    "olmo3": {"sliding_window": 6},
    "cohere2": {"sliding_window": 5},
    "gpt_oss": {"sliding_window": 5},
    "llama4_text": {"attention_chunk_size": 6},
    "gemma3n_text": {"sliding_window": 4},
}


@pytest.mark.parametrize("kind", WINDOWED)
def test_windows_chunks_and_sinks_equal_plain(kind):
    """The same far beyond windows and chunks; rows that no later token sees are given back."""
    model = zoo.build_pair(kind, **WINDOWED[kind])[0].double()
    model.config._experts_implementation = "eager"  # the others have no float64
    rounds_itself = kind == "llama4_text"  # its rotations are computed in float32
    check = decode_at_random(model, rounds=14, most=8, tolerance=1e-5 if rounds_itself else None)
    arenas = check.engine.arenas
    assert any(arenas.reaches)
    for tree in check.trees:
        for reach, cache in zip(arenas.reaches, check.engine.caches[tree], strict=True):
            assert reach is None or (cache.first > 0 and len(cache) < 40 + 2 * reach.size)


def decode_at_random(model, rounds, most=20, tolerance=None):
    rng = random.Random(0)
    check = Check(
        model,
        [[5, 9, 2, 7], [3], [rng.randrange(VOCABULARY) for _ in range(11)]],
        rows=8,
        tolerance=tolerance,
    )
    for _ in range(rounds):
        wants = []
        for tree in check.trees:
            tips = [tree.trunk[-1], *tree.tail]
            for _ in range(rng.randrange(1, most)):
                tips.append(tree.add(rng.choice(tips[-8:]), rng.randrange(VOCABULARY)))
            nodes = check.open_nodes(tree)
            if nodes and rng.random() < 0.9:
                wants.append((tree, rng.sample(nodes, rng.randrange(1, len(nodes) + 1))))
        check.ask(wants)
        for tree in check.trees:
            live = [tree.trunk[-1], *tree.tail]
            tree.keep(rng.sample(live[1:] or live, min(len(live[1:] or live), rng.randrange(1, 3))))
    return check


class Trees(RuleBasedStateMachine):
    """Random histories of two trees on a one-layer model."""

    model = build(num_hidden_layers=1)
    tree = st.integers(0, 1)
    pick = st.integers(0, 10**6)

    def __init__(self):
        super().__init__()
        self.check = Check(self.model, [[1, 2, 3], [9] * 6], rows=4)

    @rule(tree=tree, pick=pick, token=st.integers(0, 3))
    def add(self, tree, pick, token):
        tree = self.check.trees[tree]
        live = [tree.trunk[-1], *tree.tail]
        tree.add(live[pick % len(live)], token)

    @rule(tree=tree, length=st.integers(1, 6), token=st.integers(0, 3))
    def add_chain(self, tree, length, token):
        tree = self.check.trees[tree]
        node = [tree.trunk[-1], *tree.tail][-1]
        for _ in range(length):
            node = tree.add(node, token)

    @rule(
        picks=st.lists(st.tuples(tree, pick), min_size=1, max_size=6),
        chunk=st.sampled_from([None, None, 2]),
    )
    def ask(self, picks, chunk):
        wants = {}
        for index, pick in picks:
            if nodes := self.check.open_nodes(tree := self.check.trees[index]):
                wants.setdefault(tree, {})[nodes[pick % len(nodes)]] = None
        if wants:
            self.check.ask([(tree, list(nodes)) for tree, nodes in wants.items()], chunk)

    @rule(tree=tree, picks=st.lists(pick, min_size=1, max_size=3))
    def keep(self, tree, picks):
        tree = self.check.trees[tree]
        live = [tree.trunk[-1], *tree.tail]
        tree.keep([live[pick % len(live)] for pick in picks])


Trees.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestTrees = Trees.TestCase


def test_the_model_stays_as_it_was():
    """Passes, also failing ones, leave the caller's model alone.

    Its attention, its weights and `generate` stay as they are."""
    model = build()
    weights = {
        name: (weight, weight.clone()) for name, weight in model.state_dict(keep_vars=True).items()
    }
    attention = model.config._attn_implementation

    def tokens():
        return model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=8, do_sample=False).tolist()

    before = tokens()
    check = Check(model, [[1, 2, 3]], rows=8)
    check.ask([(check.trees[0], [2])])
    check.engine.model.layout.append(None)
    check.engine.arena.keys.clear()
    with pytest.raises(IndexError):
        check.engine.run([(check.trees[0], [check.trees[0].add(2, 5)])])
    assert model.config._attn_implementation == attention
    assert tokens() == before
    now = model.state_dict(keep_vars=True)
    assert all(
        now[name] is weight and torch.equal(weight, copy)
        for name, (weight, copy) in weights.items()
    )


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": VOCABULARY, "intermediate_size": 48,
         "max_position_embeddings": 64, "initializer_range": 0.3, "pad_token_id": 0,
         "bos_token_id": None, "eos_token_id": None}  # fmt: skip


def make(config: str, **changes):
    """In float32, which mixtures of experts need."""
    torch.manual_seed(0)
    config = getattr(transformers, config)(**{**SIZES, **changes})
    return AutoModelForCausalLM.from_config(config).eval()


def why_not_packed(model):
    """Such a model runs with its own cache instead."""
    return ModelPair(model, None).plain["target"].why


def greedy(model, prompt, count):
    """By plain passes."""
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            tokens.append(
                model(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax().item()
            )
    return tokens[len(prompt) :]


def with_rope(kind, **parameters):
    rope = {"rope_type": kind, "rope_theta": 10000.0, "factor": 4.0, **parameters}
    return build(max_position_embeddings=200, rope_parameters=rope)


def longrope():
    return with_rope(
        "longrope",
        short_factor=[1.0] * 4,
        long_factor=[3.0] * 4,
        original_max_position_embeddings=50,
    )


def test_longrope_ends_where_its_frequencies_change():
    """Its frequencies were chosen by the longest text of a pass.

    A prompt of 5 tokens beside one of 60 drew other tokens than alone, and behind the 50 positions
    of its first training greedy was no longer that of plain passes."""
    pair = ModelPair(longrope(), None)
    assert pair.positions == 50
    with pytest.raises(
        InputError,
        match="exceed the 50 positions of the target model; shorten the prompt or max_new",
    ):
        generate(pair, [3] * 20, "greedy", max_new_tokens=31)
    prompts = [[1, 2, 3, 4, 5], list(range(20))]
    for prompt, result in zip(
        prompts, generate(pair, prompts, "greedy", max_new_tokens=30), strict=True
    ):
        assert result.tokens == greedy(pair.target, prompt, 30)


TWICE = {
    "DiffLlamaConfig": {},
    "HrmTextConfig": {"num_layers_per_stack": 1, "H_cycles": 2, "L_cycles": 2},
}  # fmt: skip


@pytest.mark.parametrize("config", TWICE)
def test_a_layer_that_attends_twice_is_not_packed(config):
    """Both attentions of a layer wrote into the same cache rows.

    The first pass had no rows to spoil, so the models loaded and gave wrong tokens."""
    assert why_not_packed(make(config, **TWICE[config])).startswith(
        "a layer attends more than once in a pass"
    )


SLIDING = {
    "MistralConfig": {},
    "Phi3Config": {},
    "PhimoeConfig": {"num_local_experts": 4},
    "Qwen2Config": {"use_sliding_window": True, "max_window_layers": 0},
}


@pytest.mark.parametrize(("config", "window"), [*zip(SLIDING, (1, 40, 16, 2), strict=True)])
def test_a_window_is_found_in_the_mask(config, window):
    """The window of phimoe is only in a mask that it requests, which packed attention never gets.

    The model loaded, and from the 17th token on gave other tokens than `generate`. Windows larger
    than the check's prompts are made small for it."""
    model = make(config, sliding_window=window, **SLIDING[config])
    pair = ModelPair(model, None)
    assert not pair.plain
    assert set(pair.packed["target"].reaches) == {Reach(window)}
    assert generate(pair, [5, 6, 7], "greedy", max_new_tokens=61).tokens == greedy(
        model, [5, 6, 7], 61
    )


@pytest.mark.parametrize("config", ["Phi3Config", "Qwen2Config"])
def test_a_window_as_large_as_the_positions_is_none(config):
    """Phi-3.5-mini has a window of 262,144 tokens and 131,072 positions, and was refused."""
    model = make(config, sliding_window=64, **SLIDING[config])
    pair = ModelPair(model, None)
    assert not pair.plain
    assert generate(pair, [5, 6, 7], "greedy", max_new_tokens=61).tokens == greedy(
        model, [5, 6, 7], 61
    )


def test_an_attention_scaled_by_the_place_in_a_pass_is_not_packed():
    """From the 8,192nd token of a pass on, Llama 4 scales queries in some layers.

    These are the layers without rotary positions. In a packed pass that token may be the first of
    the tenth request."""
    sizes = {
        "head_dim": 8,
        "num_local_experts": 2,
        "no_rope_layers": [1, 0],
        "layer_types": ["full_attention"] * 2,
    }
    why = why_not_packed(make("Llama4TextConfig", **sizes))
    assert why.startswith(
        "its attention is scaled by a token's place in the pass, which is not its position in a "
        "packed"
    )
    assert not ModelPair(
        make("Llama4TextConfig", **sizes, attn_temperature_tuning=False), None
    ).plain


def test_a_model_that_looks_ahead_is_refused():
    """BERT without `is_decoder` is a causal language model only by name."""
    with pytest.raises(
        InputError,
        match=(
            r"cannot be run: packed, its attention looks ahead; without a cache, the whole text "
            r"in each pass, it does"
        ),
    ):
        ModelPair(make("BertConfig"), None)
