"""Rounds made in advance that leave nothing to decide (settled).

At temperature 0 nothing is left to chance: the draft model drafts its likeliest tokens, and the
target keeps them up to the first that is not its own likeliest. So such rounds are written down
without their decoder and without distributions, as the decoder would have written them.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from decoders.foreseen import Foreseen
from decoders.randomness import SeededSource
from decoders.reading import Reading
from decoders.request import Request
from decoders.shapes import NodeId, TokenId
from decoders.trace import Fate, Round, Trial, Trials


def settled(
    request: Request, foreseen: Mapping[str, Foreseen], known: Mapping[str, dict[NodeId, Reading]]
) -> Iterator[Round]:
    """Commit the rounds that passes in advance have made, if the temperature is 0.

    It ends where the passes end, or where they have fed another text.

    Args:
        request: the request, whose last ask was `steady`
        foreseen: passes that were made in advance, by model
        known: gets the target's readings of each round, by model and node
    """
    judged, drawn = foreseen.get("target"), foreseen.get("draft")
    if not judged:
        return
    tree = request.tree
    while not request.finished and (fed := judged.fed()) and fed[0] == tree.tokens[request.tip]:
        draft, nodes = fed[1:], [request.tip]
        own = judged.said()
        if not own or (draft and not (drawn and drawn.said(len(draft)) == draft)):
            return
        for token in draft:
            nodes.append(tree.add(nodes[-1], token))
        if (rows := judged.follow(nodes[-1])) is None:
            return
        drew = not draft or (drawn and drawn.follow(nodes[-2], len(draft)))
        kept = 0
        while kept < len(draft) and draft[kept] == own[kept]:
            kept += 1
        # Readings after refused tokens are needed only if the decoder goes on from here.
        count = kept + 1 if drew else len(nodes)
        readings = judged.readings(slice(rows.start, rows.start + count))
        known["target"].update(zip(nodes[:count], readings, strict=True))
        if not drew:
            return
        yield request.advance(*_walked(request, draft, nodes, kept, own[kept]))


def _walked(
    request: Request,
    draft: Sequence[TokenId],
    nodes: Sequence[NodeId],
    count: int,
    own: TokenId,
) -> tuple[Trials, NodeId]:
    """The trials of a draft that is judged token by token, and the new tip.

    Random numbers decide nothing here, but each is taken: they are part of a trace.

    Args:
        request: the request
        draft: the tokens
        nodes: the tip and the nodes of the draft
        count: how many tokens of the draft are kept
        own: the target's token after those
    """
    source = request.source
    assert isinstance(source, SeededSource)  # a request is not `certain` with another
    tested = min(count + 1, len(draft))
    tests = source.take(len(draft) + tested + 1)[len(draft) : -1]
    kept = [
        Trial(nodes[i + 1], draft[i], nodes[i], Fate.ACCEPTED, 1.0, 1.0, 1.0, tests[i])
        for i in range(count)
    ]
    tip = request.tree.add(nodes[count], own)
    fate = Fate.CORRECTED if count < len(draft) else Fate.BONUS if draft else Fate.SAMPLED
    kept.append(Trial(tip, own, nodes[count], fate, 1.0))
    every = partial(_every, kept, draft, nodes, tests)
    return Trials(kept, len(draft), tested, count, every), tip


def _every(
    kept: Sequence[Trial],
    draft: Sequence[TokenId],
    nodes: Sequence[NodeId],
    tests: Sequence[float],
) -> list[Trial]:
    """All trials: accepted tokens, one that was refused by the last number, those after it."""
    *accepted, own = kept
    rest = [*zip(nodes[1:], draft, nodes, strict=False)][len(accepted) :]
    trials = [Trial(*each, Fate.DISCARDED) for each in rest]
    if rest:
        trials[0] = Trial(*rest[0], Fate.REJECTED, 0.0, 1.0, 0.0, tests[-1])
    return [*accepted, *trials, own]
