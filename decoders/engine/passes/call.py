"""One call of the kernels (call): a pass, what is read of its logits, and perhaps a chain after it.

Between two passes of a small model Python takes as long as one of them does. A chain takes its
random numbers before its first token, so nothing stands between its passes but the draws, which
the kernels make as `Distribution.draw` does: float64 masses, cumulated by rising id.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from decoders.distribution import MANY, Tops
from decoders.engine.attention.interface import Packing
from decoders.engine.lowering.program import Program
from decoders.engine.memory.feeds import Feed, PackedInputs
from decoders.engine.protocols import Answer, Chain
from decoders.shapes import Logits

# The most passes of a call, and the most bytes of float32 weights that they read (as float16, half
# as much): whoever stops a request waits for the call, and its first token for the last one.
PASSES, BYTES = 16, 2**30
REQUESTS = 4  # a pass of so many takes up to twice as long as that of one
NOTHING = np.empty((0, 0), np.int64), np.empty((0, 4)), np.empty((0, 0)), np.empty(0, np.int64)


@dataclass(frozen=True)
class Call:
    """What a call has given.

    Attributes:
        rows: the logits, those of a chain before each token, (n, V); if chains were drawn, request
            by request in each pass
        tops: what was read of the rows
        tokens: the tokens of chains, (steps, requests)
    """

    rows: Logits
    tops: Tops
    tokens: np.ndarray

    @property
    def passes(self) -> int:
        """The number of passes."""
        return max(1, len(self.tokens))

    def of(self, answer: Answer, place: int) -> Answer:
        """The answer to one request, given that of a pass alone."""
        answer = replace(answer, rows=self.rows, tops=self.tops)
        if not len(self.tokens):
            return answer
        part = slice(place, None, self.tokens.shape[1])
        return replace(answer, part=part, tokens=self.tokens[:, place].tolist())


def call(
    program: Program,
    weight_bytes: int,
    feeds: Sequence[Feed],
    inputs: PackedInputs,
    sought: int,
    chains: Sequence[Chain],
) -> Call:
    """Make a pass, and draw as many tokens of each chain as one call takes.

    Args:
        program: the program of the model
        weight_bytes: bytes of its weights
        feeds: what the requests feed
        inputs: the tensors of the pass
        sought: how many of the likeliest tokens are looked for in each row
        chains: the chain of each request, or none
    """
    requests, count = len(feeds), len(inputs.wanted)
    steps = length(weight_bytes, feeds, inputs, chains) if chains else 0
    rows, most = (
        count + max(0, steps - 1) * requests,
        min(sought if sought <= MANY else 1, program.size),
    )
    logits, sums = np.empty((rows, program.size), np.float32), np.empty(rows)
    tops, ids = np.empty((rows, most), np.float32), np.empty((rows, most), np.int64)
    plan = NOTHING
    if steps:
        numbers = [chain.numbers(steps) if chain.numbers else [0.0] * steps for chain in chains]
        plan = (
            np.empty((steps, requests), np.int64),
            np.array([as_numbers(chain) for chain in chains], np.float64),
            np.array(numbers, np.float64).T.copy(),
            np.array([*{end for chain in chains for end in chain.ends}], dtype=np.int64),
        )
    passes = program.passes(inputs, logits, (tops, ids, sums), *plan)
    if passes:
        rows = passes * requests
    best = Tops(tops[:rows], ids[:rows], {1.0: sums[:rows]})
    return Call(torch.from_numpy(logits[:rows]), best, plan[0][:passes])


def length(
    weight_bytes: int, feeds: Sequence[Feed], inputs: PackedInputs, chains: Sequence[Chain]
) -> int:
    """How many tokens of each chain a call draws; 0 if kernels cannot."""
    packing = inputs.packing
    # Every token must see all rows before it.
    if not isinstance(packing, Packing) or any(line[4] >= 0 for line in packing.segments.tolist()):
        return 0
    passes = BYTES // (weight_bytes * -(-len(feeds) // REQUESTS))
    room = min(feed.cache.capacity - len(feed.cache) for feed in feeds)
    return min(max(1, min(PASSES, passes)), 1 + room, *(chain.steps for chain in chains))


def as_numbers(chain: Chain) -> tuple[float, ...]:
    """A warping as the kernels want it, see `decoders.engine.kernels.select.weigh`."""
    warping = chain.warping
    return warping.temperature, warping.top_k, warping.top_p, warping.min_p
