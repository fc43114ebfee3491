"""Rounds that two models make before they are asked, in one call of the kernels (rounds).

Whoever knows a decoder's rule and its next random numbers knows how it goes on. So the kernels
draft and verify for as long as a call may take. The loop comes to the same tokens by itself and
finds their passes there. If it comes to others, what was made is forgotten. So rounds made in
advance change no token.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from decoders.engine.answers import Further, Made
from decoders.engine.memory.arena import Arena
from decoders.engine.memory.rows import CacheRows
from decoders.engine.passes.foresight import BYTES
from decoders.engine.protocols import Verified
from decoders.shapes import NodeId, TokenId
from decoders.tree import TokenTree

ROUNDS = 8  # the most of a call


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

    def ends_with(self, tree: TokenTree, node: NodeId) -> bool:
        """Whether the rows are those of this node and of all before it, in order."""
        return self.cache.nodes[-1] == node and len(self.cache) == tree.depths[node] + 1


def rounds(target: Fed, draft: Fed, last: Verified) -> tuple[Further, Further] | None:
    """Make further rounds, see `decoders.engine.protocols.Passes.rounds`."""
    tree, nodes, logits, drawn, foresee = last
    length = len(nodes) - 1
    verifies, drafts = target.model.lowered(1 + length), draft.model.lowered(2)
    known = target.ends_with(tree, nodes[-1]) and draft.ends_with(tree, nodes[-2])
    known &= len(logits) == len(nodes)
    if verifies is None or drafts is None or not known or verifies.size != drafts.size:
        return None
    bytes_read = target.model.weight_bytes + length * draft.model.weight_bytes
    room = min(fed.cache.capacity - len(fed.cache) for fed in (target, draft))
    most = min(ROUNDS, BYTES // bytes_read, room // (1 + length))
    outlook = foresee(most) if most > 0 else None
    if outlook is None:
        return None
    most = len(outlook.numbers) // (1 + 2 * length)
    judged = torch.empty(most, 1 + length, verifies.size)
    asked = torch.empty(most, length, drafts.size)
    tokens, kept = np.empty((most, 1 + length), np.int64), np.full(most, -1)
    text = [tree.tokens[node] for node in nodes]
    made = verifies.rounds(
        drafts.program(draft.arena, draft.cache.base, 2),
        verifies.program(target.arena, target.cache.base, 1 + length),
        np.array(text[1:]),
        drawn().numpy(),
        logits.numpy(),
        judged.numpy(),
        asked.numpy(),
        tokens,
        kept,
        np.array(outlook.ends, dtype=np.int64),
        np.array(outlook.warping),
        np.array(outlook.numbers),
        tree.depths[nodes[0]],
        outlook.tokens,
    )
    begun = int((kept >= 0).sum())
    if not begun:
        return None
    roots = nodes[kept[0]], nodes[min(kept[0], length - 1)]  # of what each model has seen
    texts = [text, *tokens[:begun].tolist()]
    if begun > made:  # an end token in the draft
        end = next(i for i, token in enumerate(texts[-1][1:], 1) if token in outlook.ends)
        texts[-1] = texts[-1][: end + 1]
    judgements, draws = passes_of(texts, kept[:begun].tolist(), made, tree.depths[nodes[0]])
    weight_bytes = target.model.bytes_read(1 + length), draft.model.bytes_read(1)
    return (
        Further(roots[0], judged[:made].flatten(0, 1), judgements, weight_bytes[0]),
        Further(roots[1], asked[:begun].flatten(0, 1), draws, weight_bytes[1]),
    )


def passes_of(
    texts: Sequence[Sequence[TokenId]], kept: Sequence[int], verified: int, place: int
) -> tuple[list[Made], list[Made]]:
    """The passes of the target and those of the draft model in some rounds.

    Args:
        texts: for the round that is over and for each of these, the last token of the text and the
            draft after it
        kept: for each of these, how many draft tokens of the one before are in its text
        verified: how many of them the target has verified, perhaps not the last one
        place: the place of the last token of the text in the round that is over
    """
    length = len(texts[0]) - 1
    judged, drawn = list[Made](), list[Made]()
    tip = fed = 0  # of the tokens that the draft model was fed: the last one of the text, and all
    for step, (count, before, text) in enumerate(zip(kept, texts, texts[1:], strict=False)):
        place += count + 1
        first = step * (1 + length)
        after = first - length + count if step else 0
        if step < verified:
            judged.append(Made(after, place, text, slice(first, first + 1 + length)))
        # The draft model has not seen the last token of its draft.
        late = before[length:] if count == length else []
        after, row = (tip + min(count, length - 1) if step else 0), step * length
        drawn.append(Made(after, place - len(late), [*late, text[0]], slice(row, row + 1)))
        tip = fed = fed + len(late) + 1
        for i in range(1, len(text) - 1):
            drawn.append(Made(fed, place + i, [text[i]], slice(row + i, row + i + 1)))
            fed += 1
    return judged, drawn
