"""Chains that the kernels draw in one call: a pass of one token a request, a draw, the next pass.

Between two passes of a small model Python takes as long as one of them does. A chain takes its
random numbers before its first token, so nothing stands between its passes but the draws, which
the kernels make as `Distribution.draw` does: float64 masses, cumulated by rising id.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from decoders.engine.answers import Answer
from decoders.engine.attention.interface import Packing
from decoders.engine.memory.feeds import Feed, PackedInputs
from decoders.engine.protocols import Chain, Wants
from decoders.scan import MANY, Found
from decoders.shapes import Logits
from decoders.warp import NUCLEUS

# The most passes of a call, and the most bytes of float32 weights that they read (as float16, half
# as much): whoever stops a request waits for the call, and its first token for the last one.
PASSES, BYTES = 16, 2**30
REQUESTS = 4  # a pass of so many takes up to twice as long as that of one


@dataclass(frozen=True)
class Drawing:
    """What was drawn in one call.

    Attributes:
        rows: the logits before each token, (passes * requests, V), request by request in each pass
        tokens: the tokens, (passes, requests)
        found: what was read of the rows
    """

    rows: Logits
    tokens: np.ndarray
    found: Found

    def of(self, answer: Answer, place: int) -> Answer:
        """The answer to one request, given that of the first pass."""
        part, tokens = slice(place, None, self.tokens.shape[1]), self.tokens[:, place].tolist()
        return replace(answer, rows=self.rows, part=part, tokens=tokens, found=self.found)


def draw(
    model: Any,
    wants: Wants,
    feeds: Sequence[Feed],
    inputs: PackedInputs,
    logits: Logits,
    chains: Sequence[Chain],
) -> Drawing | None:
    """Draw chains of requests.

    Args:
        model: the model, a `decoders.engine.models.packed.PackedModel`
        wants: for each request the one node after which it draws
        feeds: what they have fed; all but a part of a prompt
        inputs: the tensors of that pass
        logits: its result, (requests, V)
        chains: their chains

    Returns:
        as many tokens of each as one call takes; None if the kernels cannot draw them
    """
    lowered, packing = model.lowered(len(feeds)), inputs.packing
    fits = logits.dtype == torch.float32 and logits.is_contiguous()
    if lowered is None or not fits or not isinstance(packing, Packing):
        return None
    # A part of a prompt draws nothing, and every token must see all rows before it.
    parts = any(f.wanted != list(nodes) for f, (_, nodes) in zip(feeds, wants, strict=True))
    if parts or any(line[4] >= 0 for line in packing.segments.tolist()):
        return None
    passes = BYTES // (model.weight_bytes * -(-len(feeds) // REQUESTS))
    steps = min(
        *(chain.steps for chain in chains),
        max(1, min(PASSES, passes)),
        *(1 + f.cache.capacity - len(f.cache) for f in feeds),
    )
    if steps < 2:
        return None
    size, requests = logits.shape[1], len(feeds)
    numbers = [chain.numbers(steps) if chain.numbers else [0.0] * steps for chain in chains]
    sought = max(chain.sought for chain in chains)
    most = min(sought if sought <= MANY else 1, size)
    rows, sums = np.empty((steps, requests, size), np.float32), np.empty(steps * requests)
    tops = np.empty((steps * requests, most), np.float32)
    ids = np.empty((steps * requests, most), np.int64)
    tokens = lowered.chain(
        logits,
        inputs.position_ids,
        packing,
        np.array([as_numbers(chain) for chain in chains]),
        np.array(numbers).T.copy(),
        np.array([*{end for chain in chains for end in chain.ends}], dtype=np.int64),
        (rows, tops, ids, sums),
    )
    count = len(tokens) * requests
    return Drawing(
        torch.from_numpy(rows.reshape(-1, size)[:count]),
        tokens,
        Found(tops[:count], ids[:count], {1.0: sums[:count]}),
    )


def as_numbers(chain: Chain) -> tuple[float, ...]:
    """A warping as the kernels want it, see `decoders.engine.kernels.guess.weigh`."""
    warping = chain.warping
    few = warping.top_k or (NUCLEUS if warping.cuts else 0)
    return warping.temperature, few, bool(warping.top_k), warping.top_p, warping.min_p
