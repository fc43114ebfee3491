"""Suffix decoding: drafts of what most often followed the longest known run of last tokens."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders import catalog, generate
from decoders.distribution import Warping
from decoders.errors import InputError
from decoders.methods.copies import Suffix, Suffixes
from decoders.randomness import SeededSource
from decoders.testing.oracle import assert_exact, decode
from decoders.testing.situations import Drawn, Head, Situation, drawn
from decoders.trace import Fate
from tests.models import build_pair
from tests.pieces import commit, propose, request

LOOP = (0, 1, 2, 0, 1)


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


@pytest.mark.parametrize(
    "settings",
    [{}, {"copy": 2}, {"shape": "tree", "copy": 3}, {"match": 1, "least": 0.0}],
    ids=repr,
)
@pytest.mark.parametrize("warping", [Warping(), Warping(0.7, 2)])
@pytest.mark.parametrize("references", [(), ((0, 1, 1, 2), (2, 2, 0))])
def test_it_has_the_targets_law(settings, warping, references):
    situation = drawn(
        3, 5, budget=4, warping=warping, end=frozenset({2}), prompt=LOOP, references=references
    )
    assert_exact(catalog["suffix"](**settings), situation)
    drafted = decode(catalog["suffix"](**settings), situation, SeededSource(0)).rounds
    assert any(entry.drafted for entry in drafted)


@pytest.mark.parametrize("warping", [Warping(), Warping(0.7, 2)])
def test_a_head_drafts_where_no_long_run_is_found(warping):
    """Copies with no chances and drafts of a head follow one another in one text."""
    method = catalog["speculative"](draft="suffix, else head(sure=2, copy=2, draft_length=2)")
    assert method.uses_head
    assert not method.uses_draft
    assert method.law
    states = (Drawn(2, 7),)
    situation = Situation(
        Drawn(2, 4), Head(2, 5), features=states, budget=4, prompt=(0, 1, 1, 0), warping=warping
    )
    assert_exact(method, situation, limit=60_000)
    kinds = set()
    for seed in range(40):
        for entry in decode(method, situation, SeededSource(seed)).rounds:
            drafted = [t for t in entry.trials if t.fate in (Fate.ACCEPTED, Fate.REJECTED)]
            kinds |= {t.q == 1 for t in drafted}
    assert kinds == {True, False}


@pytest.mark.parametrize("rule", ["tokenwise", "block", "traversal", "match"])
def test_a_chain_is_judged_by_any_rule_for_certain_tokens(rule):
    situation = drawn(3, 2, budget=4, prompt=LOOP)
    assert_exact(catalog["speculative"](rule=rule, draft="suffix(copy=3)"), situation)
    assert_exact(catalog["suffix"](rule=rule), situation)


def test_a_tree_is_judged_by_match_alone():
    with pytest.raises(InputError, match="rule tokenwise cannot judge the draft suffix, a tree"):
        catalog["speculative"](draft="suffix(shape=tree)")


def test_the_token_that_followed_most_often_is_proposed():
    assert chain([1, 5, 1, 6, 1, 6, 1], match=1, copy=1) == [6]


def test_the_longest_run_wins_over_a_shorter_one_that_is_more_frequent():
    assert chain([1, 2, 3, 2, 4, 2, 4, 1, 2], copy=1) == [3]


def test_longer_runs_give_longer_drafts():
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    assert len(chain([*text, 1], factor=2.0)) == 2
    assert len(chain([*text, 1, 2, 3], factor=2.0)) == 6
    assert len(chain([*text, 1, 2, 3], factor=2.0, copy=4)) == 4


def test_a_loop_is_drafted_whole():
    assert chain([4] * 12, copy=7) == [4] * 7
    assert chain([1, 2, 3] * 4, copy=7) == [1, 2, 3, 1, 2, 3, 1]


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


def test_the_output_is_read_as_it_grows():
    assert chain([1], [2, 3, 1], [2], copy=2) == [3, 1]


def test_nothing_known_proposes_nothing():
    assert chain([1, 2, 3]) == []


def test_requests_of_a_call_share_the_references_and_nothing_else():
    shared = {}
    references = [(1, 6, 7)]
    chain([3, 4, 3], references=references, shared=shared)
    assert chain([9, 1], references=references, shared=shared, copy=1) == [6]
    assert chain([9, 3], references=references, shared=shared) == []


def test_a_seed_gives_the_same_tokens_in_any_batch_and_order():
    pair = build_pair()
    prompts = [[5, 9, 3] * 4, [1, 2, 3], [4] * 9]
    options = {"max_new_tokens": 16, "temperature": 0.6}
    for method in (catalog["suffix"](), catalog["suffix"](shape="tree")):
        alone = [generate(pair, p, method, seed=i, **options).tokens for i, p in enumerate(prompts)]
        for order in ([0, 1, 2], [2, 0, 1]):
            batch = generate(
                pair, [prompts[i] for i in order], method, seed=order, max_batch=2, **options
            )
            assert [r.tokens for r in batch] == [alone[i] for i in order]


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=4),
    st.integers(1, 4),
)
def test_the_runs_give_what_scanning_gives(texts, match):
    """The definition: of the longest run that was followed by something, the commonest follower."""
    text = [token for part in texts for token in part]
    followers: Counter[int] = Counter()
    for n in range(min(match, len(text) - 1), 0, -1):
        followers.update(
            text[i] for i in range(n, len(text)) if text[i - n : i] == text[len(text) - n :]
        )
        if followers:
            break
    found = chain(texts[0], *texts[1:], match=match, copy=1, factor=1.0, least=0.0)
    assert bool(found) == bool(followers)
    if found:
        share = Fraction(followers[found[0]], followers.total())
        assert share == max(Fraction(n, followers.total()) for n in followers.values())
