"""A draft with another tokenizer proposes tokens that both know and changes no law.

It reads the target's text in its own tokens."""

import random
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoders import ModelPair, catalog, generate
from decoders.distribution import Warping
from decoders.engine.models.translation import Translated, Translation, Vocabulary
from decoders.methods.dsbd import DSBD
from decoders.methods.named import MCSS, SpecInfer, SpecTr, Speculative
from decoders.testing.oracle import assert_exact
from decoders.testing.situations import Drawn, Situation
from decoders.tree import TokenTree
from tests import layouts
from tests.histories import histories
from tests.models import VOCABULARY, build, build_tokenizer, plain_logits
from tests.pairwise import pairwise, part

PROMPTS = [[5, 6, 7, 8], [3], [9] * 12, list(range(20, 40))]
# The target has "ab" and "b"; the draft has "abc", and knows neither "ab" nor the end of the text.
TOY = Translation.between(
    Vocabulary({0: b"a", 1: b"b", 2: b"ab"}, {3: "eos_token_id"}),
    Vocabulary({0: b"b", 1: b"abc", 2: b"a"}, {}), 4, 3,
)  # fmt: skip
# Both have "7" twice, as text and as a byte token, and the target also has "77".
TWICE = Translation.between(
    Vocabulary({2: b"7", 3: b"77", 1: b"7"}, {0: "eos_token_id"}),
    Vocabulary({0: b"7", 1: b"7"}, {2: "eos_token_id"}), 4, 3,
)  # fmt: skip
WARPINGS = [Warping(), Warping(0.7, 2), Warping(1.0, 0, 0.8), Warping(0)]


def test_tokens_are_compared_by_their_bytes():
    assert TOY.target_ids.tolist() == [0, 1]
    assert TOY.draft_ids.tolist() == [2, 0]
    assert TOY.known == 0.5
    assert [TOY.read(token) for token in (0, 1, 2)] == [(2,), (0,), (2, 0)]
    row = TOY.over_target(torch.tensor([[1.0, 2.0, 3.0]]))
    assert row.tolist() == [[3.0, 1.0, float("-inf"), float("-inf")]]


def test_sentencepiece_and_byte_level_tokens_are_the_same_bytes():
    byte_level = build_tokenizer(("Ġthe",))
    assert Vocabulary.of(byte_level).pieces[1] == b" the"
    assert Vocabulary.of(byte_level).specials == {0: "eos_token_id"}

    class Pieces:
        all_special_ids, added_tokens_decoder, eos_token_id, bos_token_id = [2], {}, 2, None
        decode = str

        def get_vocab(self):
            return {"▁the": 0, "<0x0A>": 1, "</s>": 2}

    assert Vocabulary.of(Pieces()).pieces == {0: b" the", 1: b"\n"}
    both = Translation.between(Vocabulary.of(byte_level), Vocabulary.of(Pieces()), VOCABULARY, 3)
    assert (both.target_ids.tolist(), both.draft_ids.tolist()) == ([0, 1], [2, 0])
    assert both.read(5) == (both.unknown,)


class Words:
    """A tokenizer of SentencePiece's kind, with `words` in this order of its hash map."""

    all_special_ids, added_tokens_decoder, eos_token_id, bos_token_id = [0], {}, 0, None
    decode = str

    def __init__(self, words):
        self.words = words

    def get_vocab(self):
        return dict(self.words)


WORDS = [
    ("</s>", 0), ("<0x20>", 1), ("<0x37>", 2), ("<0x39>", 3), ("7", 4), ("▁", 5), ("▁7", 6),
    ("\n", 7), ("<0x0A>", 8),
]  # fmt: skip
OTHERS = [
    ("</s>", 0), ("7", 1), ("▁", 2), ("<0x0A>", 3), ("<0x37>", 4), ("<0x20>", 5), ("<0xFF>", 6),
]  # fmt: skip


@given(st.permutations(WORDS), st.permutations(OTHERS))
def test_no_order_of_a_vocabulary_matters(words, others):
    """`get_vocab()` has another order in each process.

    If "7" and "<0x37>" both stood for a byte, the first one was taken, so the same seed gave other
    tokens."""
    both = Translation.between(*(Vocabulary.of(Words(order)) for order in (words, others)), 9, 7)
    assert list(zip(both.target_ids.tolist(), both.draft_ids.tolist(), strict=True)) == [
        (0, 0), (1, 5), (2, 4), (4, 1), (5, 2), (7, 3),
    ]  # fmt: skip
    assert [both.read(i) for i in (2, 4, 6, 8, 3)] == [(4,), (1,), (2, 1), (3,), (0,)]


def test_tokens_that_the_draft_model_lacks_are_never_fed_to_it():
    """A tokenizer may have more tokens than its model.

    The target's text was spelled with them, which ended in an IndexError."""
    target, draft = (
        Vocabulary({0: b"a", 1: b"ab"}, {}),
        Vocabulary({0: b"a", 1: b"b", 2: b"ab"}, {}),
    )
    both = Translation.between(target, draft, 2, 2)
    assert both.read(1) == (0, 1)


@pytest.mark.parametrize("names", layouts.PAIRS, ids=" and ".join)
def test_letters_are_read_and_proposed_as_letters_in_any_order_of_the_vocabularies(names):
    """Three of four letters were read as byte tokens.

    A draft with the target's own weights and other ids had .01 to .09 accepted. And Llama 2's,
    Mistral's and Gemma's byte tokens made texts differ from process to process, in each of which
    get_vocab has another order."""
    written, other = (layouts.written(layouts.pair_of(*names, order)) for order in (0, 1))
    metrics = [result.metrics for result in written]
    assert sum(m.accepted for m in metrics) >= 0.7 * sum(m.tested for m in metrics)
    assert [r.tokens for r in other] == [r.tokens for r in written]
    assert all(len(r.tokens) == 40 for r in written)


@dataclass(frozen=True, eq=False)
class Read:
    """A toy draft behind a path of the target's tokens."""

    translation: Translation
    seed: int

    def __call__(self, path):
        return self.translation.over_target(
            Drawn(3, self.seed)(tuple(t for token in path for t in self.translation.read(token)))
        )


@pytest.mark.parametrize(("method", "warping", "translation", "end"), pairwise(
    [Speculative(1), Speculative(2), SpecTr(2, 2), SpecInfer((2, 1)), MCSS((2, 1)),
     DSBD(1, 2, 2)],
    WARPINGS,
    [TOY, TWICE],
    [frozenset(), frozenset({3})],
), ids=repr)  # fmt: skip
def test_exact_decoders_stay_exact(method, end, warping, translation):
    """Enumerated: target and draft are tables over tokens of their own."""
    budget = 2 if isinstance(method, (DSBD, SpecTr, SpecInfer, MCSS)) else 3
    assert_exact(
        method,
        Situation(Drawn(4, 5), Read(translation, 6), budget=budget, warping=warping, end=end),
    )


def make(positions=512, words=("th", "he", "the"), others=("t", "qu", "el")):
    target, draft = build(), build(seed=1, max_position_embeddings=positions)
    return ModelPair(target, draft, build_tokenizer(words), build_tokenizer(others))


def test_any_history_of_a_tree_gives_the_drafts_own_logits():
    """The tree of the draft's tokens follows that of the request.

    With chains, trees, several tips and prompts in chunks."""
    pair, rng = make(), random.Random(0)
    model = pair.packed["draft"]
    assert isinstance(model, Translated)
    engine, trees = model.engine(), [TokenTree([1, 2, 3]), TokenTree(list(range(1, 21)))]
    for tree in trees:
        engine.admit(tree, 8)
    answered, seen = 0, {tree: set() for tree in trees}
    for wants in histories(trees, 15, rng, seen):
        for (tree, nodes), answer in zip(wants, engine.run(wants, chunk=8), strict=True):
            for node, row in zip(
                nodes,
                answer.logits if answer.logits is not None else (),
                strict=answer.logits is not None,
            ):
                path = tree.lineage(node)
                seen[tree] |= set(path)
                read = [t for n in path for t in model.translation.read(tree.tokens[n])]
                own = plain_logits(pair.draft, read)
                torch.testing.assert_close(row, model.translation.over_target(own))
                answered += 1
    assert answered > 40


@pytest.mark.parametrize("name", part(["speculative", "mtad", "dsbd", "specinfer", "traversal"]))
def test_decoders_run_on_two_tokenizers(name):
    """Alone or in a batch the same tokens; at temperature 0 an exact decoder gives those of greedy.

    The draft ends after 20 of its own tokens and then proposes all alike."""
    pair = make(positions=20)
    assert 0.9 < pair.known < 1
    options = {"max_new_tokens": 10, "top_k": 20}
    alone = [generate(pair, p, name, seed=7 + i, **options).tokens for i, p in enumerate(PROMPTS)]
    ours = generate(pair, PROMPTS, name, seed=7, prefill_chunk=5, **options)
    assert [r.tokens for r in ours] == alone
    method = catalog[name]()
    if method.lossless:
        plain = method.plain if method.law.certain else "greedy"
        results = generate(pair, PROMPTS, name, max_new_tokens=10, temperature=0)
        expected = generate(pair, PROMPTS, plain, max_new_tokens=10)
        assert [r.tokens for r in results] == [r.tokens for r in expected]
