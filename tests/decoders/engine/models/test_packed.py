"""Packed passes equal the model's own forward pass, whatever the trees did before.

They leave the model unchanged."""

import random

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from decoders.engine.loading.admission import agrees_with_plain_pass
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


def test_prefill_in_chunks():
    """The prompt goes in by chunks while another request decodes; a draft behind it stays whole."""
    check = Check(build(), [list(range(1, 14)), [4, 4]], rows=40)
    long, short = check.trees
    assert check.ask([(long, [12]), (short, [1])], chunk=5) == [False, True]
    assert check.ask([(long, [12]), (short, [short.add(1, 6)])], chunk=5) == [False, True]
    assert check.ask([(long, [12])], chunk=5) == [True]
    node = long.trunk[-1]
    chain = [node := long.add(node, token) for token in range(8)]
    assert check.ask([(long, chain)], chunk=5) == [True]


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


def test_the_twin_shares_weights():
    """No second copy in memory: a weight changed in place also changes for packed passes.

    Also after a move."""
    model = build()
    packed = PackedModel(model, "target")
    model.float()
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    assert packed.dtype == torch.float32
    agrees_with_plain_pass(packed)
