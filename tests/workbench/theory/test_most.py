"""The most that a lossless rule accepts of a tree, against what is known of simple trees."""

import itertools
from fractions import Fraction

import pytest

from decoders.testing.proof import Everywhere, Scatter, Table, most_accepted
from workbench.theory.rules import most_of_tree

TABLES = [Table(V, Scatter(V, parts, 0), Scatter(V, parts, 1)) for V in (2, 3) for parts in (3, 7)]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_of_a_chain_it_is_what_block_verification_reaches(table, length):
    each, together = most_of_tree(table, (1,) * length)
    known = [float(x) for x in most_accepted(table, length)]
    assert each == pytest.approx(known, abs=1e-9)
    assert together == pytest.approx(sum(known), abs=1e-9)


@pytest.mark.parametrize(("table", "k"), [*zip(TABLES, (2, 3, 3, 2), strict=True)])
@pytest.mark.parametrize("distinct", [False, True])
def test_of_one_layer_it_is_the_known_minimum_over_sets(table, distinct, k):
    """Max flow: the least, over sets S, of p outside of S plus the chance that a child is in S."""
    p, q = ([float(x) for x in row(())] for row in (table.p, table.q))

    def missing(S):
        """The chance that no child is in S."""
        if not distinct:
            return (1 - sum(q[x] for x in S)) ** k

        def go(left, drawn):
            mass = sum(q[x] for x in left)
            if drawn == k or not mass:
                return 1.0
            return sum(q[x] / mass * go(left - {x}, drawn + 1) for x in left - S if q[x])

        return go(frozenset(x for x in range(table.V) if q[x]), 0)

    least = min(
        sum(p[x] for x in range(table.V) if x not in S) + 1 - missing(frozenset(S))
        for size in range(table.V + 1)
        for S in itertools.combinations(range(table.V), size)
    )
    assert most_of_tree(table, (k,), distinct)[1] == pytest.approx(least, abs=1e-9)


def test_more_children_never_accept_less_and_layers_together_no_more_than_each():
    half, rest = Fraction(1, 2), Fraction(1, 4)
    table = Table(2, Everywhere((rest, 1 - rest)), Everywhere((half, half)))
    chain, tree = most_of_tree(table, (1, 1))[1], most_of_tree(table, (2, 2))
    assert chain < tree[1] <= sum(tree[0]) + 1e-9
