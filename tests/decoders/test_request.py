"""What committing a round does to a request."""

import torch

from decoders.request import Request
from decoders.testing.oracle import Source
from decoders.trace import Fate, Trial
from decoders.warp import Warping


def begin(budget=4, end=frozenset(), stops=None, clock=lambda: 0.0):
    r = Request([7, 8], Source(), Warping(), budget, end, stops, clock)
    r.note_time(None)
    return r


def grow(r, *tokens):
    nodes, node = [], r.tip
    for token in tokens:
        nodes.append(node := r.tree.add(node, token))
    return nodes


def trials(r, nodes):
    return [Trial(n, r.tree.tokens[n], r.tree.parents[n], Fate.ACCEPTED) for n in nodes]


def test_an_ask_wants_only_what_is_not_known_each_once():
    r = begin()
    a, b = grow(r, 1, 2)
    ask = r.ask("target", [r.tip, a, a, b])
    assert r.missing(ask) == [r.tip, a, b]
    r.known["target"].update({n: torch.tensor([float(n)]) for n in (1, a, b)})
    assert r.missing(ask) == []
    assert r.answer_to(ask).flatten().tolist() == [1, a, a, b]
    assert r.missing(r.ask("draft", [a])) == [a]


def test_advancing_moves_the_answer_and_forgets_logits_but_the_tips():
    r = begin()
    a, b = grow(r, 1, 0)
    r.known["target"].update({n: torch.zeros(3) for n in (1, a, b)})
    e = r.advance(trials(r, [a, b]), b)
    assert (e.tokens, e.nodes, e.keep, r.left, r.tip, r.finished) == ([1, 0], [a, b], 0, 2, b, None)
    assert list(r.known["target"]) == [b]
    (c,) = grow(r, 2)
    assert r.advance([], c).keep == 2


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


def test_time_is_charged_to_drafting_and_verifying():
    now = iter([0.0, 2.0, 5.0, 6.0])
    r = begin(clock=lambda: next(now))
    r.note_time("draft")
    r.note_time("target")
    (a,) = grow(r, 1)
    e = r.advance(trials(r, [a]), a)
    assert (e.draft_seconds, e.verify_seconds, r.seconds) == (2.0, 4.0, 6.0)
