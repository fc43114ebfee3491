"""Passes that a model makes before it is asked, in one call of the kernels (ahead).

Between two passes lies more than a pass of a small model takes, and the weights of a larger one
drive the caller's memory out of the processor's cache. So a request says how it will probably go
on. The kernels guess its tokens and feed them. When the loop has drawn the same token, its pass is
there; if it has drawn another, the guesses are forgotten. So they change no token.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from decoders.engine.answers import Further, Made
from decoders.engine.attention.interface import Packing
from decoders.engine.memory.feeds import Feed, PackedInputs
from decoders.engine.passes.room import Room
from decoders.engine.protocols import Foresee
from decoders.scan import Found
from decoders.shapes import Logits, TokenId

# The most passes, or rounds, of a call, and the most bytes of float32 weights that they read (as
# float16, which is half as much): the first token of a call waits for the last one.
PASSES, BYTES = 16, 2**31
REQUESTS = 4  # a pass of so many takes up to twice as long as that of one


def most(weight_bytes: int, requests: int = 1) -> int:
    """How many passes a call makes in advance, at most.

    Args:
        weight_bytes: those of the model
        requests: the number of requests in a pass
    """
    passes = BYTES // (weight_bytes * -(-requests // REQUESTS))
    return max(0, min(PASSES, passes) - 1)


def ahead(
    model: Any,
    feeds: Sequence[Feed],
    inputs: PackedInputs,
    logits: Logits,
    foresee: Sequence[Foresee | None],
) -> tuple[Logits, list[list[TokenId]], Found | None]:
    """Make passes for requests that each wait for what follows the last token that they fed.

    Args:
        model: the model, a `decoders.engine.models.packed.PackedModel`
        feeds: what they fed
        inputs: the tensors of that pass
        logits: its result, (requests, V)
        foresee: tells for each request how it will probably go on

    Returns:
        the logits of all passes, beginning with that one, (passes * requests, V), the tokens that
        each request fed in those after it, and what was read of these logits
    """
    nothing: tuple[Logits, list[list[TokenId]], None] = logits, [[] for _ in feeds], None
    lowered, packing = model.lowered(len(feeds)), inputs.packing
    fits = logits.dtype == torch.float32 and logits.is_contiguous()
    if lowered is None or not fits or not isinstance(packing, Packing):
        return nothing
    # Every token must see all rows before it.
    if any(f.wanted != f.nodes[-1:] for f in feeds) or any(
        line[4] >= 0 for line in packing.segments.tolist()
    ):
        return nothing
    room = min(
        most(model.weight_bytes, len(feeds)), *(f.cache.capacity - len(f.cache) for f in feeds)
    )
    outlooks = [tell(room) for tell in foresee if tell]
    known = [outlook for outlook in outlooks if outlook]
    if len(known) < len(feeds):
        return nothing
    steps = min(outlook.tokens for outlook in known)
    numbers = [[o.numbers[step] for o in known] for step in range(steps)]
    seen = Room.of(1 + steps, len(feeds), logits.shape[1], max(o.sought[0] for o in known))
    tokens = lowered.ahead(
        logits,
        inputs.position_ids,
        packing,
        np.array([o.warping for o in known]),
        np.array(numbers),
        np.array([*{end for o in known for end in o.ends}], dtype=np.int64),
        tuple(seen),
    )
    rows, found = seen.read(1 + len(tokens))
    return torch.from_numpy(rows), tokens.T.tolist(), found


def following(
    feed: Feed, rows: Logits, tokens: Sequence[list[TokenId]], place: int, weight_bytes: int
) -> Further | None:
    """What was made in advance for one request of a pass; None if nothing was.

    Args:
        feed: what it fed
        rows, tokens: see `ahead`
        place: which of the requests it is
        weight_bytes: bytes of weights that a pass reads
    """
    if not tokens[place]:
        return None
    node, requests = feed.nodes[-1], len(tokens)
    # The first row of each request is of what it fed itself.
    made = Made(
        0, feed.tree.depths[node] + 1, tokens[place], 1, slice(requests + place, None, requests)
    )
    return Further(node, rows, [made], weight_bytes)
