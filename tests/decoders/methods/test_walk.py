"""Walking a draft: the children tested, the fates of the others, and the draw at the end."""

from collections import Counter

import torch

from decoders.methods.rules import Pick, walk
from decoders.methods.sources import Draft
from decoders.reading import Readings
from decoders.request import Draw
from decoders.testing.oracle import Source, Watched
from decoders.testing.situations import WHOLE
from decoders.trace import DRAFTED, KEPT, Fate


class Keep:
    """Keeps the named token wherever it was drawn, after testing those before it."""

    def __init__(self, token):
        self.token = token

    def pick(self, node, source):
        tokens = node.tokens
        at = tokens.index(self.token) if self.token in tokens else len(tokens) - 1
        kept = tokens[at] == self.token
        return Pick([(0.1, 0.2, 0.5, 0.0)] * (at + 1), kept, None if kept else node.p)


def walked(edges, rule, end=frozenset()):
    """`edges`: (index of the parent's draw or -1 for the root, token), drawn in this order."""
    request = Watched([0], source=Source(), warping=WHOLE, budget=20, end_tokens=end)
    draft, nodes = Draft(request.tip), []
    for parent, token in edges:
        above = draft.root if parent < 0 else nodes[parent]
        nodes.append(request.tree.add(above, token))
        draft.draws.append(Draw(nodes[-1], above, token))
    logits = torch.zeros(len(draft.nodes), 4, dtype=torch.float64)
    trials, tip = walk(request, draft, Readings(logits, 4), rule)
    fates = Counter(t.fate for t in trials.every())
    assert trials.drafted == len(edges) == sum(fates[fate] for fate in DRAFTED)
    assert (trials.tested, trials.accepted) == (
        len(edges) - fates[Fate.DISCARDED],
        fates[Fate.ACCEPTED],
    )
    assert trials.kept == [t for t in trials.every() if t.fate in KEPT]
    return [(t.token, t.fate) for t in trials.every()], request.path(tip)


def test_the_children_before_the_kept_one_are_rejected_and_those_behind_it_discarded():
    trials, path = walked([(-1, 2), (-1, 1), (-1, 3), (1, 1), (0, 1)], Keep(1))
    assert trials == [
        (2, Fate.REJECTED), (1, Fate.ACCEPTED), (3, Fate.DISCARDED), (1, Fate.ACCEPTED),
        (1, Fate.DISCARDED), (0, Fate.BONUS),
    ]  # fmt: skip
    assert path == (0, 1, 1, 0)


def test_where_none_is_kept_the_target_corrects_and_the_walk_ends():
    trials, path = walked([(-1, 1), (0, 2), (1, 1)], Keep(1))
    assert trials == [
        (1, Fate.ACCEPTED),
        (2, Fate.REJECTED),
        (1, Fate.DISCARDED),
        (0, Fate.CORRECTED),
    ]
    assert path == (0, 1, 0)


def test_nothing_follows_a_kept_end_token():
    trials, path = walked([(-1, 1)], Keep(1), end=frozenset({1}))
    assert (trials, path) == ([(1, Fate.ACCEPTED)], (0, 1))


def test_without_a_draft_one_token_is_sampled():
    assert walked([], Keep(1)) == ([(0, Fate.SAMPLED)], (0, 0))
