"""The token tree against a plain list of paths."""

from hypothesis import given
from hypothesis import strategies as st

from decoders.tree import TokenTree


def path(tree, node):
    return tuple(tree.tokens[n] for n in tree.lineage(node))


def test_equal_children_are_one_node_and_token_0_is_a_token():
    tree = TokenTree([5, 0])
    a = tree.add(1, 0)
    assert tree.add(1, 0) == a != tree.add(1, 7)
    assert (path(tree, a), tree.new_tokens(a)) == ((5, 0, 0), [0])
    assert (tree.new_length(a), tree.new_length(1)) == (1, 0)
    assert tree.lineage(a, 2) == [a]


def test_a_branch_let_go_keeps_its_number_and_a_new_one_gets_another():
    tree = TokenTree([1])
    a, b = tree.add(0, 2), tree.add(0, 3)
    tree.keep([b])
    assert tree.trunk == [0, b]
    assert tree.add(0, 2) not in (a, b)
    assert path(tree, a) == (1, 2)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 2)), max_size=40), st.data())
def test_keep_holds_what_the_tips_share_and_need(growth, data):
    tree = TokenTree([0, 0])
    for where, token in growth:
        live = [tree.trunk[-1], *tree.tail]
        tree.add(live[where % len(live)], token)
        if where % 7 == 0:
            live = [tree.trunk[-1], *tree.tail]
            tips = data.draw(st.lists(st.sampled_from(live), min_size=1, max_size=3))
            before = {n: path(tree, n) for n in tips}
            tree.keep(tips)
            assert {n: path(tree, n) for n in tips} == before
            needed = set().union(*(tree.lineage(n) for n in tips))
            assert set(tree.trunk) | set(tree.tail) == needed | set(tree.trunk)
            common = set.intersection(*(set(tree.lineage(n)) for n in tips))
            assert set(tree.trunk) == common
    for a in (tree.trunk[-1], *tree.tail):
        for b in (tree.trunk[-1], *tree.tail):
            shared = [x for x, y in zip(tree.lineage(a), tree.lineage(b), strict=False) if x == y]
            assert tree.fork(a, b) == shared[-1]
    assert all(tree.in_trunk(n) for n in tree.trunk)
    assert not any(tree.in_trunk(n) for n in tree.tail)
