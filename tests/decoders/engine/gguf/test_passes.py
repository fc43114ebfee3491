"""Trees in sequences: each node gets the logits of the text that ends there, whatever grows."""

import random

import numpy as np
import pytest
import torch

from decoders import InputError, ModelPair, catalog, compare_greedy, generate
from decoders.engine.gguf.model import GgufModel
from decoders.engine.protocols import Model
from decoders.tree import TokenTree
from tests.decoders.engine.gguf.cells import Table, made_up
from tests.heads import drafts_for
from tests.laws import enumerated

PROMPTS = [5, 6, 7, 8], [3], list(range(12)) * 2
TAKING_DRAFTS = [name for name, method in catalog.items() if method.uses_draft]


def grown(tree, draw, count):
    """Some new nodes below the trunk's end or below each other, each asked about once."""
    tips = [tree.trunk[-1], *tree.tail]
    new = []
    for _ in range(count):
        node = tree.add(draw.choice(tips), draw.randrange(12))
        if node not in tips:
            new.append(node)
            tips.append(node)
    return new


def right(table, tree, nodes, answer):
    expected = [table.logits(tree.text(node)) for node in nodes]
    np.testing.assert_allclose(answer.rows[answer.part], expected, rtol=1e-6)


@pytest.mark.parametrize("sequences", [1, 2, 5, 256])
@pytest.mark.parametrize("seed", range(4))
def test_trees_that_grow_and_are_cut(sequences, seed):
    """Three requests, with fewer sequences than leaves, too; rounds keep one tip, or several."""
    draw, table = random.Random(seed), Table(sequences=sequences)
    engine = GgufModel(table, "target").engine(rows=20)
    trees = [TokenTree(list(prompt)) for prompt in PROMPTS]
    for tree in trees:
        assert engine.admit(tree, 40)
    asked = [tree.trunk[-1:] for tree in trees]
    for _ in range(12):
        wants = [(tree, nodes) for tree, nodes in zip(trees, asked, strict=True) if nodes]
        draw.shuffle(wants)
        for (tree, nodes), answer in zip(wants, engine.run(wants), strict=True):
            right(table, tree, nodes, answer)
        for tree in trees:
            if draw.random() < 0.6:
                live = [tree.trunk[-1], *tree.tail]
                tree.keep(draw.sample(live, min(len(live), draw.choice([1, 1, 3]))))
        asked = [grown(tree, draw, draw.randrange(1, 9)) for tree in trees]
    for tree in trees:
        engine.release(tree)
    assert not table.made[-1].cells


def test_a_chain_stays_in_one_sequence_and_shares_its_cells():
    table = Table()
    engine, tree = GgufModel(table, "target").engine(rows=30), TokenTree([1, 2, 3])
    engine.admit(tree, 20)
    engine.run([(tree, [2])])
    for token in range(5):
        tip = tree.add(tree.trunk[-1], token)
        engine.run([(tree, [tip])])
        tree.keep([tip])
    forks = [tree.add(tip, token) for token in range(4)]
    engine.run([(tree, forks)])
    (context,) = table.made
    assert engine.rows_of(tree) == len(context.cells) == 3 + 5 + 4
    assert {s for cell in context.cells for s in cell.sequences} == {0, 1, 2, 3}
    # the rejected ones are gone with the next pass
    tree.keep(forks[1:2])
    engine.run([(tree, [tree.add(forks[1], 7)])])
    assert engine.rows_of(tree) == len(context.cells) == 3 + 5 + 2
    assert len({s for cell in context.cells for s in cell.sequences}) == 1


def test_one_call_for_a_tree_that_fits_and_parts_for_a_wider_one():
    for sequences, calls in ((8, 1), (4, 2), (3, 3)):
        table = Table(sequences=sequences)
        engine, tree = GgufModel(table, "target").engine(rows=50), TokenTree([1, 2, 3])
        engine.admit(tree, 20)
        nodes = [tree.add(2, token) for token in range(8)]
        (answer,) = engine.run([(tree, nodes)])
        right(table, tree, nodes, answer)
        assert (table.made[-1].calls, answer.passes) == (calls, calls)
        assert answer.weight_bytes == calls * table.weight_bytes


def test_a_prompt_in_chunks():
    table = Table()
    engine, tree = GgufModel(table, "target").engine(rows=50), TokenTree(list(range(10)))
    engine.admit(tree, 20)
    rows = []
    for _ in range(4):
        (answer,) = engine.run([(tree, [9])], chunk=3)
        rows.append((answer.part, engine.rows_of(tree)))
    assert rows == [(None, 3), (None, 6), (None, 9), (slice(0, 1), 10)]
    right(table, tree, [9], answer)


def test_a_context_that_is_full_gives_way_to_a_larger_one():
    table = Table()
    engine, tree = GgufModel(table, "target").engine(rows=8), TokenTree([1, 2, 3])
    engine.admit(tree, 8)
    engine.run([(tree, [2])])
    for _ in range(12):
        tip = tree.add(tree.trunk[-1], 4)
        (answer,) = engine.run([(tree, [tip])])
        right(table, tree, [tip], answer)
        tree.keep([tip])
    assert [(context.rows, context.closed) for context in table.made] == [(8, True), (18, False)]


def test_after_a_larger_context_found_no_memory_the_freed_one_is_not_used(monkeypatch):
    """Its memory was freed, and yet `release` and the next run went on with it."""
    table, trees = Table(), [TokenTree([1, 2, 3]), TokenTree([1, 2, 4])]
    engine, long = GgufModel(table, "target").engine(rows=8), [trees[0].add(2, i) for i in range(7)]
    assert all(engine.admit(tree, 8) for tree in trees)
    engine.run([(trees[0], [2]), (trees[1], [2])])
    monkeypatch.setattr(table, "context", lambda rows: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        engine.run([(trees[0], long)])
    monkeypatch.undo()
    engine.release(trees[0])
    (answer,) = engine.run([(trees[1], [2])])
    right(table, trees[1], [2], answer)
    engine.release(trees[1])
    assert [context.closed for context in table.made] == [True, False]


def test_a_limit_keeps_requests_waiting():
    table = Table()
    engine, trees = GgufModel(table, "target").engine(0, 30), [TokenTree([1]), TokenTree([2])]
    assert [engine.admit(tree, 20) for tree in trees] == [True, False]
    engine.run([(trees[0], [0])])
    engine.release(trees[0])
    engine.release(trees[1])
    assert table.made[0].closed
    assert engine.admit(trees[1], 20)


def test_a_context_is_used_again_by_the_next_run():
    pair = made_up()
    for _ in range(3):
        generate(pair, PROMPTS[0], "speculative", max_new_tokens=5)
    assert [len(pair.packed[role].weights.made) for role in ("target", "draft")] == [1, 1]


def test_of_contexts_of_runs_at_the_same_time_the_largest_is_kept():
    model = GgufModel(Table(), "target")
    small, large = model.lend(10, None), model.lend(20, None)
    model.take_back(large, None)
    model.take_back(small, None)
    assert (small.closed, large.closed) == (True, False)
    assert model.lend(15, None) is large
    model.take_back(large, None)
    assert model.lend(30, None).rows == 30
    assert large.closed


def test_a_node_is_asked_about_once():
    engine, tree = GgufModel(Table(), "target").engine(rows=9), TokenTree([1, 2])
    engine.admit(tree, 5)
    engine.run([(tree, [1])])
    with pytest.raises(RuntimeError, match="a second time"):
        engine.run([(tree, [1])])


def test_it_fits():
    assert all(isinstance(model, Model) for model in made_up().packed.values())


@pytest.mark.parametrize("sequences", [4, 256])
@pytest.mark.parametrize("name", TAKING_DRAFTS)
def test_every_decoder_with_a_draft(name, sequences):
    """In a batch, in chunks, each request gets the tokens that it gets alone, greedy's when cold;
    also where sequences are too few for a tree."""
    drafts_for(made_up(sequences, vocabulary=30), name, PROMPTS)


@pytest.mark.parametrize("name", sorted(set(catalog) - set(TAKING_DRAFTS)))
def test_every_other_decoder(name):
    pair, options = made_up(vocabulary=30), {"max_new_tokens": 12, "temperature": 0}
    together = generate(pair, PROMPTS, name, **options)
    assert [r.tokens for r in together] == [
        generate(pair, prompt, name, **options).tokens for prompt in PROMPTS
    ]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("speculative", {"draft_length": 2}),
        ("specinfer", {"expansion": (2,)}),
        ("block", {"draft_length": 2}),
    ],
)
def test_the_law(name, settings):
    pair = made_up()
    law = enumerated(pair, [5, 6], catalog[name](**settings), max_new_tokens=2, top_k=2)
    alone = ModelPair(pair.target, None)
    expected = enumerated(alone, [5, 6], catalog["multinomial"](), max_new_tokens=2, top_k=2)
    assert set(law) == set(expected)
    assert all(abs(law[text] - expected[text]) < 1e-6 for text in law)


def test_end_tokens_are_the_files():
    pair = made_up(ends=[0, 3])
    assert pair.end_tokens == {0, 3}
    tokens = generate(pair, PROMPTS[0], "greedy", max_new_tokens=200).tokens
    assert len(tokens) == 200 or tokens[-1] in (0, 3)


def test_what_it_cannot_do_is_refused():
    pair = made_up()
    for call, sentence in (
        (lambda: pair.target.refuse_features((1,)), "gives no hidden states"),
        (lambda: generate(pair, [1], "greedy", padding="kv"), "padding is for models of trans"),
        (lambda: compare_greedy(pair, [1], [2], [3]), "has no float64 to compare with"),
        (lambda: generate(pair, [1], "greedy", max_new_tokens=600), "exceed the 512 positions"),
        (lambda: generate(pair, [12], "greedy"), "out of range"),
    ):
        with pytest.raises(InputError, match=sentence):
            call()


def test_a_draft_of_fewer_or_more_logits():
    """Embeddings of one family are padded to several sizes."""
    target = Table(vocabulary=14)
    for size in (12, 20):
        draft = GgufModel(Table(vocabulary=size), "draft", 14)
        pair = ModelPair(GgufModel(target, "target"), draft)
        cold = {"max_new_tokens": 10, "temperature": 0}
        assert (
            generate(pair, [13, 1], "speculative", **cold).tokens
            == generate(pair, [13, 1], "greedy", **cold).tokens
        )
    rows = GgufModel(Table(vocabulary=2), "draft", 3).over_vocabulary(np.ones((1, 2)))
    assert torch.isinf(torch.from_numpy(rows)).tolist() == [[False, False, True]]
