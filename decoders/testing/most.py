"""The most draft tokens that any lossless rule can accept of a tree, by linear programming.

Of a rule only the flow counts: for each tree the chance that it keeps the path to a node or
further. It is lossless with some token of its own after every end if and only if, for each text s
and token x, it keeps s x at most p(x | s) times as often as s. So the most is the largest flow that
never branches to more than came in, and that keeps to these shares.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from decoders.testing.proof import Table
from decoders.testing.situations import Path

Support = frozenset[Path]  # the texts to the nodes of a tree
EPSILON = 1e-12


def most_of_tree(
    table: Table, shape: Sequence[int], distinct: bool = False
) -> tuple[list[float], float]:
    """The most that a lossless rule can accept of trees drawn from q.

    Args:
        shape: children of every draw, layer by layer
        distinct: whether the children of a node are drawn without replacement

    Returns:
        For each layer the largest chance that a token of it is accepted, each by a rule of its own,
        and the largest mean number of accepted tokens of one rule.
    """
    trees = supports(table, tuple(shape), distinct)
    flows = [(tree, node) for tree in trees for node in sorted(tree)]
    place = {flow: i for i, flow in enumerate(flows)}
    rows: list[dict[int, float]] = []
    bounds: list[float] = []
    for tree, chance in trees.items():
        for node in [(), *sorted(tree)]:
            row = {place[tree, below]: 1.0 for below in tree if below[:-1] == node and below}
            rows.append(row | ({place[tree, node]: -1.0} if node else {}))
            bounds.append(0.0 if node else chance)
    for node in {node for tree in trees for node in tree}:
        p = float(table.p(node[:-1])[node[-1]])
        row = {place[tree, node]: 1.0 for tree in trees if node in tree}
        if above := node[:-1]:
            row |= {place[tree, above]: -p for tree in trees if above in tree}
        rows.append(row)
        bounds.append(0.0 if above else p)
    matrix = np.zeros((len(rows), len(flows)))
    for i, row in enumerate(rows):
        matrix[i, list(row)] = list(row.values())
    depths = np.array([len(node) for _, node in flows])
    layers = range(1, len(shape) + 1)
    each = [largest((depths == layer).astype(float), matrix, np.array(bounds)) for layer in layers]
    return each, largest(np.ones(len(flows)), matrix, np.array(bounds))


def supports(
    table: Table, shape: tuple[int, ...], distinct: bool, path: Path = ()
) -> dict[Support, float]:
    """From each tree that can be drawn below a text to its chance; equal draws are one node."""
    if not shape:
        return {frozenset(): 1.0}
    below = {
        token: supports(table, shape[1:], distinct, (*path, token))
        for token, q in enumerate(table.q(path))
        if q
    }
    # The children drawn so far, and what they and all below them make.
    states: dict[tuple[frozenset[int], Support], float] = {(frozenset(), frozenset()): 1.0}
    for _ in range(shape[0]):
        following: dict[tuple[frozenset[int], Support], float] = defaultdict(float)
        for (children, tree), chance in states.items():
            left = {x: float(table.q(path)[x]) for x in below if not (distinct and x in children)}
            if not left:
                following[children, tree] += chance
            for token, q in left.items():
                for more, share in below[token].items():
                    key = children | {token}, tree | more | {(*path, token)}
                    following[key] += chance * share * q / math.fsum(left.values())
        states = following
    trees: dict[Support, float] = defaultdict(float)
    for (_, tree), chance in states.items():
        trees[tree] += chance
    return dict(trees)


def largest(gain: np.ndarray, matrix: np.ndarray, bounds: np.ndarray) -> float:
    """The largest gain x with matrix x <= bounds and x >= 0, for bounds of at least 0.

    The simplex method with Bland's rule, which never goes in circles.
    """
    m, n = matrix.shape
    table = np.zeros((m + 1, n + m + 1))
    table[:m, :n], table[:m, n : n + m], table[:m, -1] = matrix, np.eye(m), bounds
    table[m, :n] = -gain
    basis = list(range(n, n + m))
    while (entering := np.flatnonzero(table[m, :-1] < -EPSILON)).size:
        column = int(entering[0])
        able = np.flatnonzero(table[:m, column] > EPSILON)
        ratios = table[able, -1] / table[able, column]
        tied = able[ratios <= ratios.min() + EPSILON]
        row = min(tied, key=lambda i: basis[i])
        table[row] /= table[row, column]
        others = np.arange(m + 1) != row
        table[others] -= np.outer(table[others, column], table[row])
        basis[row] = column
    return float(table[m, -1])
