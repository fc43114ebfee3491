import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders.methods.copies import Lookup
from tests.pieces import commit, propose, request


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
    """The last match of a loop runs into the end of the text; it goes on with its own copy."""
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
