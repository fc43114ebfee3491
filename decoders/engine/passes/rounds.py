"""Rounds that two models make before they are asked, in one call of the kernels (rounds).

Whoever knows a decoder's rule and its next random numbers knows how it goes on. So the kernels
draft and verify for as long as a call may take. Whoever comes to the same tokens finds their passes
there. Of others, what was made is forgotten. So rounds made in advance change no token.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from decoders.engine.answers import Further, Made
from decoders.engine.memory.arena import Arena
from decoders.engine.memory.rows import CacheRows
from decoders.engine.passes.foresight import BYTES, PASSES
from decoders.engine.passes.room import Room
from decoders.engine.protocols import Begun
from decoders.shapes import NodeId, TokenId
from decoders.tree import TokenTree

UNBEGUN = -2  # in place of counts


class Fed(NamedTuple):
    """What a model was fed for a request.

    Attributes:
        model: the model, a `decoders.engine.models.packed.PackedModel`
        arena: the memory of its caches
        cache: the rows of the request
    """

    model: Any
    arena: Arena
    cache: CacheRows

    def unseen(self, tree: TokenTree, tip: NodeId) -> list[NodeId]:
        """The nodes up to the tip that have no row; none if the rows are not those before."""
        nodes = tree.lineage(tip, len(self.cache))
        return nodes if nodes and self.cache.nodes[-1] == tree.parents[nodes[0]] else []


def rounds(target: Fed, draft: Fed, begun: Begun) -> tuple[Further, Further] | None:
    """Make rounds, see `decoders.engine.protocols.Passes.rounds`."""
    tree, tip, length, foresee = begun
    verifies, drafts = target.model.lowered(1 + length), draft.model.lowered(2)
    pending = draft.unseen(tree, tip)
    if verifies is None or drafts is None or verifies.size != drafts.size:
        return None
    if target.unseen(tree, tip) != [tip] or not 1 <= len(pending) <= 2:
        return None
    bytes_read = target.model.weight_bytes + length * draft.model.weight_bytes
    place = tree.depths[tip]
    room = min(fed.cache.capacity for fed in (target, draft)) - place
    most = min(PASSES, BYTES // bytes_read, room // (1 + length))
    outlook = foresee(most) if most > 0 else None
    if outlook is None:
        return None
    rule, settings, beyond = outlook.rule
    judge = verifies.rule(rule, settings)
    if judge is None:
        return None
    planned = len(outlook.numbers) // (1 + 2 * length)
    judged = Room.of(planned, 1 + length, verifies.size, outlook.sought[0])
    drawn = Room.of(planned, length + beyond, drafts.size, outlook.sought[1])
    tokens, counts = np.empty((planned, 1 + length), np.int64), np.full((planned, 3), UNBEGUN)
    unseen = [tree.tokens[node] for node in pending]
    made = verifies.rounds(
        drafts.program(draft.arena, draft.cache.base, 2),
        verifies.program(target.arena, target.cache.base, 1 + length),
        np.array(unseen),
        tuple(judged),
        tuple(drawn),
        tokens,
        counts,
        np.array(outlook.ends, dtype=np.int64),
        judge,
        np.array(outlook.doubt),
        np.array(outlook.warping),
        np.array(outlook.numbers),
        place,
        outlook.tokens,
    )
    texts = [
        (text[: 1 + drafted], asked, kept)
        for text, (asked, drafted, kept) in zip(tokens.tolist(), counts.tolist(), strict=True)
        if kept != UNBEGUN
    ]
    judgements, draws = passes_of(texts, unseen[:-1], place, (1 + length, length + beyond))
    (rows, found), (asked, seen) = judged.read(made), drawn.read(len(texts))
    weight_bytes = target.model.bytes_read(1 + length), draft.model.bytes_read(1)
    return (
        Further(tree.parents[tip], rows, judgements, weight_bytes[0], found),
        Further(tree.parents[pending[0]], asked, draws, weight_bytes[1], seen),
    )


def passes_of(
    texts: Sequence[tuple[list[TokenId], int, int]],
    late: Sequence[TokenId],
    place: int,
    each: tuple[int, int],
) -> tuple[list[Made], list[Made]]:
    """The passes of the target and those of the draft model in some rounds.

    Args:
        texts: for each of them, the last token of the text and the draft after it; the passes of
            the draft model; and how many tokens are kept, -1 if the draft alone was made
        late: the tokens before the first of these that the draft model had not seen
        place: the place in the text of the first of these
        each: how many rows each round has, those of the target and those of the draft model
    """
    judged, drawn = list[Made](), list[Made]()
    # How many tokens the models were fed (`read`, `fed`), and up to where the next pass goes on.
    read = fed = after = seen = 0
    for step, (text, asks, kept) in enumerate(texts):
        if kept >= 0:
            row = step * each[0]
            judged.append(Made(after, place, text, len(text), slice(row, row + len(text))))
            after, read = read + 1 + kept, read + len(text)
        if not asks:  # the last token of a text
            break
        row, first = step * each[1], len(late) + 1
        asked = [*late, *text[:asks]]
        drawn.append(Made(seen, place - len(late), asked, first, slice(row, row + asks)))
        # The draft model sees the last token of a draft only if it was asked what follows.
        late, seen = text[asks : 1 + kept], fed + first + min(kept, asks - 1)
        fed, place = fed + len(asked), place + 1 + kept
    return judged, drawn
