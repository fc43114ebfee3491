"""Drafts copied from text, or drawn from counts."""

import dataclasses
import itertools
from collections import Counter
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import decoders
from decoders import generate
from decoders.distribution import Warping, warp
from decoders.errors import InputError
from decoders.methods.catalog import catalog
from decoders.methods.copies import Lookup, NGram, Suffix, Suffixes
from decoders.randomness import SeededSource
from decoders.testing.oracle import assert_exact, decode, distance
from decoders.testing.situations import Drawn, HeadTable, Rows, Situation, drawn
from decoders.trace import Fate
from tests.models import VOCABULARY, build_pair, build_tokenizer
from tests.pieces import commit, propose, request

END = frozenset({2})
LOOP = (0, 1, 2, 0, 1)
PAIR = build_pair(tokenizer=build_tokenizer(("the", "cat")))
REPEATING = [5, 9, 3, 7, 1, 8] * 6
NO_MODEL = [
    catalog["lookup"](),
    catalog["lookup"](prefer="first"),
    catalog["ngram"](),
    catalog["ngram"](order="unigram"),
]


@pytest.mark.parametrize("method", NO_MODEL, ids=repr)
@pytest.mark.parametrize("warping", [Warping(), Warping(0.7, 2)])
def test_drafts_without_a_model_leave_the_targets_law(method, warping):
    situation = drawn(
        3, 5, budget=4, warping=warping, end=END, prompt=LOOP, references=((0, 1, 1, 2), (2, 2, 0))
    )
    assert_exact(method, situation)
    assert any(entry.drafted for entry in decode(method, situation, SeededSource(0)).rounds)


@pytest.mark.parametrize("name", ["lookup", "ngram"])
def test_lenience_takes_the_claim_away_and_accepts_more(name):
    exact, lenient = catalog[name](), catalog[name](lenience=0.2)
    assert exact.lossless
    assert not lenient.lossless
    situation = drawn(3, 1, budget=200, prompt=LOOP)
    kept = [
        sum(e.accepted for e in decode(m, situation, SeededSource(0)).rounds)
        for m in (exact, lenient)
    ]
    assert kept[1] > kept[0]


@pytest.mark.parametrize(("lenience", "output"), [(0.4, (2, 2)), (0.6, (1, 2))])
def test_a_copied_token_of_half_the_likelihood_of_the_best_passes_a_lenience_below_half(
    lenience, output
):
    """At temperature 0: p(x) >= l max p on the raw target.

    The copy says 2 where the target prefers 1 two to one."""
    target = Rows((*[(0.1, 0.6, 0.3)] * 4, (0.0, 0.1, 0.9)))
    situation = Situation(
        target, target, budget=2, warping=Warping(temperature=0), prompt=(0, 2, 1, 0)
    )
    assert (
        decode(catalog["lookup"](match=1, lenience=lenience), situation, SeededSource(0)).output
        == output
    )


def test_lenience_1_on_a_copy_is_the_exact_rule():
    situation = drawn(3, 2, prompt=LOOP)
    assert distance(catalog["lookup"](lenience=1.0), situation) < 1e-12
    lossy = dataclasses.replace(catalog["lookup"](), lenience=0.5)
    assert distance(lossy, situation, law="target") > 0.01


def test_a_reference_that_holds_the_output_is_copied():
    plain = decoders.generate(PAIR, "the cat", "greedy", max_new_tokens=24)
    helped = decoders.generate(
        PAIR,
        "the cat",
        catalog["lookup"](references=["the cat" + plain.text]),
        max_new_tokens=24,
        temperature=0.0,
    )
    unaided = decoders.generate(PAIR, "the cat", "lookup", max_new_tokens=24, temperature=0.0)
    assert helped.tokens == unaided.tokens == plain.tokens
    assert helped.metrics.target_calls < unaided.metrics.target_calls


@pytest.mark.parametrize("name", ["lookup", "ngram"])
class TestReferences:
    def test_one_text_or_several(self, name):
        assert catalog[name](references="a text").references == ("a text",)
        assert catalog[name](references=["a", "b"]).references == ("a", "b")

    @pytest.mark.parametrize(("given", "n"), [("", 1), (["a", " \n"], 2)])
    def test_an_empty_one_is_refused(self, name, given, n):
        with pytest.raises(
            InputError, match=f"Reference document {n} is empty; give it some text or leave it out"
        ):
            catalog[name](references=given)

    @pytest.mark.parametrize("given", [7, [7], [b"bytes"], None])
    def test_what_is_no_text_is_refused(self, name, given):
        with pytest.raises(InputError, match="references must be texts, not"):
            catalog[name](references=given)

    def test_they_need_a_tokenizer(self, name):
        with pytest.raises(
            InputError, match="Reference documents need a tokenizer; this pair has none"
        ):
            decoders.generate(build_pair(), [1, 2], catalog[name](references="a"))


def test_no_draft_model_is_needed_to_look_up_or_count():
    alone = decoders.ModelPair(PAIR.target, None, None)
    for name in ("lookup", "ngram"):
        out = decoders.generate(alone, REPEATING, name, max_new_tokens=4)
        assert out.metrics.draft_calls == 0
        assert max(out.tokens) < VOCABULARY


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
    assert [d.parent for d in draft.draws] == [draft.root, *(d.node for d in draft.draws)][
        : len(draft.draws)
    ]
    return [d.token for d in draft.draws]


def test_what_followed_the_last_tokens_before_is_proposed():
    assert copied([1, 2, 3, 4, 5, 9, 1, 2], copy=3) == [3, 4, 5]


def test_the_longest_run_wins_over_a_later_shorter_one():
    assert copied([1, 2, 3, 8, 2, 4, 9, 1, 2], copy=1) == [3]
    assert copied([1, 2, 3, 8, 2, 4, 9, 1, 2], copy=1, match=1) == [4]


def test_a_shorter_run_is_tried_where_the_longer_has_no_match():
    assert copied([5, 2, 3, 9, 1, 2], copy=2) == [3, 9]


def test_of_several_matches_the_last_wins_or_the_first():
    prompt = [1, 2, 3, 9, 1, 2, 4, 9, 1, 2]
    assert copied(prompt, copy=1) == [4]
    assert copied(prompt, copy=1, first=True) == [3]


def test_references_are_read_before_the_prompt():
    references = [(1, 2, 6), (1, 2, 7)]
    assert copied([9, 1, 2], references=references) == [7]
    assert copied([9, 1, 2], references=references, first=True) == [6]
    assert copied([1, 2, 5, 1, 2], copy=1, references=references) == [5]
    assert copied([1, 2, 5, 1, 2], copy=1, references=references, first=True) == [6]


def test_a_reference_is_copied_to_its_end_and_no_further():
    assert copied([9, 1], references=[(1, 6), (8, 4)]) == [6]


def test_no_match_proposes_nothing():
    assert copied([1, 2, 3]) == []
    assert copied([1]) == []


def test_token_0_is_an_ordinary_token():
    assert copied([0, 0, 5, 0, 0], copy=1) == [5]


def test_the_output_is_read_as_it_grows():
    assert copied([1], [2, 3, 1], [2], copy=2) == [3, 1]
    assert copied([7, 8], [9], [7, 8], copy=2) == [9, 7]


def test_a_loop_is_drafted_whole():
    """In a loop the last match reaches the end of the text, and the copy is continued by itself."""
    assert copied([4, 4, 4], copy=5) == [4] * 5
    assert copied([1, 2, 3, 1, 2, 3], copy=7) == [1, 2, 3, 1, 2, 3, 1]


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


def test_what_is_drafted_is_not_counted():
    r = request((0, 1), vocabulary=V)
    table = NGram(r, S, pairs=True)
    node = r.tree.add(r.tip, 2)
    assert rows(r, table, [node]) == rows(r, table, [node])
    assert rows(r, table, [node])[0] == pytest.approx(bigram([[0, 1]], 2))


def test_it_is_warped_like_every_model():
    warping = Warping(0.5, 2, 0.9)
    r = request((0, 1, 1, 0, 2), vocabulary=V, warping=warping)
    plain = torch.tensor(bigram([[0, 1, 1, 0, 2]], 2), dtype=torch.float64)
    assert rows(r, NGram(r, S, pairs=True))[0] == pytest.approx(warp(plain.log(), warping).tolist())


@pytest.mark.parametrize("pairs", [False, True])
def test_every_token_has_a_chance(pairs):
    r = request((0,), vocabulary=1000)
    (q,) = rows(r, NGram(r, 1e-6, pairs))
    assert min(q) > 0
    assert sum(q) == pytest.approx(1)


TURNS = (0, 1, 2, 0, 1)


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
        3, 5, budget=4, warping=warping, end=frozenset({2}), prompt=TURNS, references=references
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
        Drawn(2, 4),
        HeadTable(2, 5),
        features=states,
        budget=4,
        prompt=(0, 1, 1, 0),
        warping=warping,
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
    situation = drawn(3, 2, budget=4, prompt=TURNS)
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


def test_suffixes_draft_a_loop_whole():
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


def test_suffixes_of_the_output_are_counted_as_it_grows():
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
