"""The effects of a committed round on a request."""

from decoders.distribution import Warping
from decoders.request import Request
from decoders.testing.oracle import Branches
from decoders.trace import Fate, Ledger, Trial


def begin(budget=4, end=frozenset(), stops=None, clock=lambda: 0.0):
    options = {"source": Branches(), "warping": Warping(), "ledger": Ledger(clock)}
    r = Request([7, 8], budget=budget, end_tokens=end, stops=stops, **options)
    r.ledger.start()
    return r


def grow(r, *tokens):
    nodes, node = [], r.tip
    for token in tokens:
        nodes.append(node := r.tree.add(node, token))
    return nodes


def trials(r, nodes):
    return [Trial(n, r.tree.tokens[n], r.tree.parents[n], Fate.ACCEPTED) for n in nodes]


def test_the_first_end_token_on_the_way_ends_the_text_and_nothing_behind_it_is_kept():
    r = begin(end=frozenset({0}))
    nodes = grow(r, 1, 0, 2)
    e = r.advance(trials(r, nodes), nodes[-1])
    assert (e.tokens, r.finished, r.answer) == ([1, 0], "end of sequence", nodes[1])
    assert [t.node for t in e.trials] == nodes[:2]


def test_a_stop_string_is_looked_for_at_every_token():
    r = begin(stops=lambda tokens: tokens[-2:] == [5, 6])
    nodes = grow(r, 5, 6, 5)
    assert r.advance(trials(r, nodes), nodes[-1]).tokens == [5, 6]
    assert r.finished == "stop string"


def test_the_budget_ends_the_text():
    r = begin(budget=2)
    nodes = grow(r, 1, 1)
    r.advance(trials(r, nodes), nodes[-1])
    assert (r.finished, r.left) == ("budget", 0)


def test_another_best_beam_takes_back_what_is_not_shared():
    r = begin()
    a, b = grow(r, 1, 2)
    other = r.tree.add(a, 3)
    r.commit([], [b, other], b, provisional=True)
    e = r.commit([], [other], other, "budget", provisional=True)
    assert (e.keep, e.tokens, e.provisional) == (1, [3], False)
