"""Drafts copied from text, or drawn from counts."""

import itertools
from collections import Counter
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import decoders
from decoders.distribution import Warping, warp
from decoders.errors import InputError
from decoders.methods.catalog import catalog
from decoders.methods.copies import Lookup, NGram, Suffix, Suffixes
from tests.models import build_pair, build_tokenizer
from tests.pieces import commit, propose, request

PAIR = build_pair(tokenizer=build_tokenizer(("the", "cat")))


def test_a_reference_that_holds_the_output_is_copied():
    plain = decoders.generate(PAIR, "the cat", "greedy", max_new_tokens=24)
    helped = decoders.generate(
        PAIR, "the cat", catalog["lookup"](references=["the cat" + plain.text]), max_new_tokens=24,
        temperature=0.0,
    )  # fmt: skip
    unaided = decoders.generate(PAIR, "the cat", "lookup", max_new_tokens=24, temperature=0.0)
    assert helped.tokens == unaided.tokens == plain.tokens
    assert helped.metrics.target_calls < unaided.metrics.target_calls


def test_references_are_texts():
    assert catalog["lookup"](references="a text").references == ("a text",)
    with pytest.raises(InputError, match="Reference document 2 is empty; give it some text or"):
        catalog["ngram"](references=["a", " \n"])
    with pytest.raises(InputError, match="references must be texts, not"):
        catalog["lookup"](references=[7])
    with pytest.raises(InputError, match="Reference documents need a tokenizer; this pair has non"):
        decoders.generate(build_pair(), [1, 2], catalog["lookup"](references="a"))


@pytest.mark.parametrize("name", ["lookup", "suffix", "recycling", "ngram"])
def test_references_have_tokens_of_the_model_alone(name):
    """An added token was an IndexError for the whole batch, or was fed to the kernels unchecked."""
    tokenizer = build_tokenizer(("the", "cat"))
    tokenizer.add_tokens([f"<{i}>" for i in range(99)])
    pair, last = build_pair(tokenizer=tokenizer), len(tokenizer) - 1
    with pytest.raises(InputError, match=f"A reference document has the token id {last}, and"):
        decoders.generate(pair, [[5], [6]], catalog[name](references="the cat<98>"))


def copied(prompt, *outputs, match=2, copy=7, first=False, **options) -> list[int]:
    """The proposals after a prompt and the outputs of some rounds."""
    r = request(tuple(prompt), **options)
    lookup = Lookup(r, match, copy, first)
    for tokens in outputs:
        propose(r, lookup.propose(r))
        commit(r, tokens)
    draft, passes = propose(r, lookup.propose(r))
    assert passes == 0
    assert not draft.q  # certain tokens
    above = [draft.root, *(d.node for d in draft.draws)]
    assert [d.parent for d in draft.draws] == above[: len(draft.draws)]
    return [d.token for d in draft.draws]


def test_references_are_read_before_the_prompt():
    references = [(1, 2, 6), (1, 2, 7)]
    assert copied([9, 1, 2], references=references) == [7]
    assert copied([9, 1, 2], references=references, first=True) == [6]
    assert copied([1, 2, 5, 1, 2], copy=1, references=references) == [5]
    assert copied([1, 2, 5, 1, 2], copy=1, references=references, first=True) == [6]


@pytest.mark.parametrize(("budget", "length"), [(1, 0), (2, 1), (4, 3), (50, 7)])
def test_it_is_never_longer_than_the_budget_less_one(budget, length):
    assert len(copied([1, 1, 1], budget=budget)) == length


def test_nothing_is_proposed_behind_an_end_token():
    assert copied([1, 2, 3, 4, 1], end_tokens=frozenset({3})) == [2, 3]


def by_scanning(text: list[int], match: int, copy: int, first: bool) -> list[int]:
    """The definition, read word by word: scan the text for each run, longest first."""
    for n in range(min(match, len(text) - 1), 0, -1):
        places = [i for i in range(n, len(text)) if text[i - n : i] == text[-n:]]
        if places:
            out, start = list(text), places[0 if first else -1]
            for i in range(copy):
                out.append(out[start + i])
            return out[len(text) :]
    return []


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(1, 9),
    st.booleans(),
)
def test_the_index_finds_what_scanning_finds(texts, match, copy, first):
    found = copied(texts[0], *texts[1:], match=match, copy=copy, first=first)
    assert found == by_scanning([t for text in texts for t in text], match, copy, first)


V, S = 4, 0.5


def rows(r, table, nodes=None) -> list[list[float]]:
    q, passes = propose(r, table.predict(r, nodes or [r.tip]))
    assert passes == 0
    return [[row[x] for x in range(r.vocabulary)] for row in q]


def unigram(text: list[int]) -> list[float]:
    return [(text.count(x) + S / V) / (len(text) + S) for x in range(V)]


def bigram(texts: list[list[int]], y: int) -> list[float]:
    pairs = [pair for text in texts for pair in itertools.pairwise(text)]
    prior = unigram([t for text in texts for t in text])
    total = sum(a == y for a, _ in pairs)
    return [(pairs.count((y, x)) + S * prior[x]) / (total + S) for x in range(V)]


def test_single_tokens_are_counted_over_prompt_output_and_references():
    r = request((0, 1, 1), vocabulary=V, references=[(3, 3)])
    table = NGram(r, S, pairs=False)
    assert rows(r, table)[0] == pytest.approx(unigram([3, 3, 0, 1, 1]))
    commit(r, (2, 1))
    assert rows(r, table)[0] == pytest.approx(unigram([3, 3, 0, 1, 1, 2, 1]))


def test_pairs_lean_on_single_tokens_and_never_reach_over_the_end_of_a_text():
    texts = [[3, 1], [0, 1, 2, 1]]
    r = request(texts[1], vocabulary=V, references=[texts[0]])
    table = NGram(r, S, pairs=True)
    assert rows(r, table)[0] == pytest.approx(bigram(texts, 1))
    for tokens in ([2], [1, 0]):
        commit(r, tokens)
        texts[1] += tokens
        assert rows(r, table)[0] == pytest.approx(bigram(texts, tokens[-1]))


def test_it_is_warped_like_every_model():
    warping = Warping(0.5, 2, 0.9)
    r = request((0, 1, 1, 0, 2), vocabulary=V, warping=warping)
    plain = torch.tensor(bigram([[0, 1, 1, 0, 2]], 2), dtype=torch.float64)
    assert rows(r, NGram(r, S, pairs=True))[0] == pytest.approx(warp(plain.log(), warping).tolist())


def proposed(prompt, *outputs, references=(), shared=None, **settings):
    """The draft after a prompt and the outputs of some rounds, as paths of tokens."""
    r = request(tuple(prompt), references=references, shared=shared)
    suffixes = Suffixes(r, Suffix(**settings))
    for tokens in outputs:
        propose(r, suffixes.propose(r))
        commit(r, tokens)
    draft, passes = propose(r, suffixes.propose(r))
    assert passes == 0
    assert not draft.q
    return [tuple(r.tree.text(d.node, r.tree.depths[r.tip] + 1)) for d in draft.draws]


def chain(*args, **settings):
    paths = proposed(*args, **settings)
    return list(paths[-1]) if paths else []


def test_a_draft_ends_where_its_share_is_small():
    halves = [1, 5, 1, 6, 1]
    assert chain(halves, match=1, least=0.6) == []
    assert chain(halves, match=1, least=0.5) == [5, 1]


def test_a_tree_has_several_continuations():
    paths = proposed([1, 5, 1, 6, 1], match=1, shape="tree", copy=4, least=0.0)
    assert {(5,), (6,)} <= set(paths)


def test_texts_finished_before_are_known_and_the_likelier_draft_wins():
    assert chain([9, 1], references=[(1, 6, 7), (1, 6, 8)], factor=1.0) == [6]
    # once in the text, always in the references: both are sure, and the text's own is taken
    assert chain([1, 5, 1], references=[(1, 6, 7)], copy=1) == [5]
    # of several in the text, the references are surer
    assert chain([1, 5, 1, 4, 1], references=[(1, 6, 7)], match=1, copy=1) == [6]


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=4),
    st.integers(1, 4),
)
def test_the_runs_give_what_scanning_gives(texts, match):
    """The definition: of the longest run that was followed by something, the commonest follower."""
    text = [token for part in texts for token in part]
    followers: Counter[int] = Counter()
    for n in range(min(match, len(text) - 1), 0, -1):
        places = (i for i in range(n, len(text)) if text[i - n : i] == text[len(text) - n :])
        followers.update(text[i] for i in places)
        if followers:
            break
    found = chain(texts[0], *texts[1:], match=match, copy=1, factor=1.0, least=0.0)
    assert bool(found) == bool(followers)
    if found:
        share = Fraction(followers[found[0]], followers.total())
        assert share == max(Fraction(n, followers.total()) for n in followers.values())
