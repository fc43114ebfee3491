"""Packed passes equal the model's own forward pass, whatever the trees did before.

They leave the model unchanged. Its first pass shows whether they can replace its own.
"""

import itertools
import random

import pytest
import torch

from decoders import InputError, ModelPair, generate
from decoders.engine.models.packed import PackedModel
from decoders.engine.passes import PackedPasses
from decoders.tree import TokenTree
from tests import zoo
from tests.histories import histories
from tests.models import FAMILIES, VOCABULARY, build, by_transformers, plain_logits
from tests.pairwise import part

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

    def ask(self, wants):
        """Ask for the nodes of each tree in `wants`."""
        arena = self.engine.arena
        shift = type(arena).shift
        arena.shift = lambda *args: (
            setattr(self, "squeezes", self.squeezes + 1),
            shift(arena, *args),
        )
        before = arena.rows
        answers = self.engine.run(wants)
        self.growths += arena.rows > before
        for (tree, nodes), answer in zip(wants, answers, strict=True):
            for node in nodes:
                self.seen[tree] |= set(tree.lineage(node))
            if len(self.engine.arenas.each) == 1:
                assert answer.cache_bytes == self.engine.rows_of(tree) * self.engine.model.row_bytes
            for node, row in zip(nodes, answer.logits, strict=True):
                plain = plain_logits(self.model, [tree.tokens[n] for n in tree.lineage(node)])
                torch.testing.assert_close(row, plain, rtol=self.tolerance, atol=self.tolerance)


@pytest.mark.parametrize(
    ("family", "dtype"), part(itertools.product(FAMILIES, TOLERANCE), 3), ids=str
)
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


@pytest.mark.parametrize("kind", part(WINDOWED))
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
    prompts = [[5, 9, 2, 7], [3], [rng.randrange(VOCABULARY) for _ in range(11)]]
    check = Check(model, prompts, rows=8, tolerance=tolerance)
    for wants in histories(check.trees, rounds, rng, check.seen, most):
        check.ask(wants)
    return check


def test_the_model_stays_as_it_was():
    """Passes, also failing ones, leave the caller's model alone.

    Its attention, its weights and `generate` stay as they are."""
    model = build()
    state = model.state_dict(keep_vars=True).items()
    weights = {name: (weight, weight.clone()) for name, weight in state}
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


def test_longrope_ends_where_its_frequencies_change():
    """Its frequencies were chosen by the longest text of a pass.

    A prompt of 5 tokens beside one of 60 drew other tokens than alone, and behind the 50 positions
    of its first training greedy was no longer that of plain passes."""
    rope = {
        "rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0, "short_factor": [1.0] * 4,
        "long_factor": [3.0] * 4, "original_max_position_embeddings": 50,
    }  # fmt: skip
    pair = ModelPair(build(max_position_embeddings=200, rope_parameters=rope), None)
    assert pair.positions == 50
    with pytest.raises(
        InputError,
        match="exceed the 50 positions of the target model; shorten the prompt or max_new",
    ):
        generate(pair, [3] * 20, "greedy", max_new_tokens=31)
    prompts = [[1, 2, 3, 4, 5], list(range(20))]
    answers = generate(pair, prompts, "greedy", max_new_tokens=30)
    for prompt, result in zip(prompts, answers, strict=True):
        assert result.tokens == by_transformers(pair.target, prompt, 30)


def test_an_attention_scaled_by_the_place_in_a_pass_is_not_packed():
    """From the 8,192nd token of a pass on, Llama 4 scales queries in some layers.

    These are the layers without rotary positions. In a packed pass that token may be the first of
    the tenth request."""
    sizes = {"no_rope_layers": [1, 0], "layer_types": ["full_attention"] * 2}
    why = ModelPair(zoo.build_pair("llama4_text", **sizes)[0], None).plain["target"].why
    assert why.startswith(
        "its attention is scaled by a token's place in the pass, which is not its position in a "
        "packed"
    )
    other, _ = zoo.build_pair("llama4_text", **sizes, attn_temperature_tuning=False)
    assert not ModelPair(other, None).plain


@pytest.mark.parametrize(
    ("family", "sizes"),
    [("phi3", {}), ("qwen2", {"use_sliding_window": True, "max_window_layers": 0})],
)
def test_a_window_as_large_as_the_positions_is_none(family, sizes):
    """Phi-3.5-mini has a window of 262,144 tokens and 131,072 positions, and was refused."""
    model, _ = zoo.build_pair(family, sliding_window=64, max_position_embeddings=64, **sizes)
    pair = ModelPair(model, None)
    assert not pair.plain
    written = generate(pair, [5, 6, 7], "greedy", max_new_tokens=61, ignore_eos=True)
    assert written.tokens == by_transformers(model, [5, 6, 7], 61)
