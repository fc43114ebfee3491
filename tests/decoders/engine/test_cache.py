"""Rows come and go as the tree does: ends at once, holes once they outnumber, the trunk never."""

import pytest
import torch

from decoders.engine.cache import Arena, CacheRows
from decoders.tree import TokenTree


def test_dead_rows():
    tree, cache = TokenTree([7, 7]), CacheRows(0, 100)
    children = [tree.add(1, token) for token in range(6)]
    assert cache.append(tree, [0, 1, *children]).visible.sum() == 1 + 2 + 6 * 3
    assert cache.trunk == 2
    tree.keep(children[:5])
    assert cache.sync(tree) is None
    assert cache.nodes == [0, 1, *children[:5]]  # the dead row at the end is dropped
    tree.keep([children[2], children[4]])
    assert cache.sync(tree) is None
    assert len(cache) == 7  # 3 of 7 are dead: not yet half
    tree.keep([children[4]])
    assert cache.sync(tree) == [6]
    assert cache.nodes == [0, 1, children[4]] == tree.trunk
    assert cache.row == {0: 0, 1: 1, children[4]: 2}
    assert cache.trunk == 3


def test_of_many_rows_no_more_than_eight_are_dead():
    tree, cache = TokenTree(range(100)), CacheRows(0, 300)
    children = [tree.add(99, token) for token in range(11)]
    cache.append(tree, [*tree.trunk, *children])
    tree.keep([children[7], *children[9:]])
    cache.sync(tree)
    assert len(cache) == 111  # 8 dead
    tree.keep(children[9:])
    cache.sync(tree)
    assert cache.nodes == [*range(100), *children[9:]]


def test_a_long_prompt_with_a_draft_behind_it_is_trunk():
    """If prompt and draft came in one pass, all of it was tail: a square mask over the prompt."""
    tree, cache = TokenTree(range(1000)), CacheRows(0, 2000)
    node = tree.add(999, 1)
    assert cache.append(tree, [*tree.trunk, node]) is None
    assert cache.trunk == 1000
    assert len(cache.visible) < 100


def test_stretches():
    """First fit; a stretch that is too small moves with its rows, and freed places are used
    again."""
    arena = Arena([(1, 2, 3)], torch.float64, torch.device("cpu"))
    a, b = arena.take(4), arena.take(4)
    a.nodes, b.nodes = [0, 1, 2, 3], [0, 1]
    arena.keys[0][:8] = torch.arange(8.0)[:, None, None]
    arena.make_room(a, 2)
    assert a.base == 8
    assert arena.keys[0][8:12, 0, 0].tolist() == [0, 1, 2, 3]
    assert arena.take(4).base == 0
    arena.give_back(b)
    assert arena.take(5).base == 20  # four rows are free before it
    assert arena.take(3).base == 4


@pytest.mark.parametrize("moved", [[4], [3, 5]])
def test_rows_move_all_at_once(moved):
    """Also to where one of them was."""
    arena = Arena([(1, 1, 1)], torch.float64, torch.device("cpu"))
    arena.take(16)
    for tensor in (arena.keys[0], arena.values[0]):
        tensor[10:16, 0, 0] = torch.arange(6.0, dtype=torch.float64)
    arena.shift([10 + row for row in moved], [*range(12, 12 + len(moved))])
    for tensor in (arena.keys[0], arena.values[0]):
        assert tensor[10 : 12 + len(moved), 0, 0].tolist() == [0, 1, *moved]
