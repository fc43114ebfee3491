"""What an engine is asked (Wants), and what it answers (Answer)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from decoders.shapes import Logits, NodeId
from decoders.tree import TokenTree

Wants = Sequence[tuple[TokenTree, Sequence[NodeId]]]  # for each request the nodes whose logits it wants


@dataclass(frozen=True, slots=True)
class Waste:
    """What padding added to one pass for one request (see `decoders.engine.padding`).

    tokens   computed only to fill up its input;   rows  added only to align its cache
    longest_growth   the most rows that any request of the batch kept since the last alignment (tau_max of ems-sd.txt eq. 8); 0 if
                     nothing was aligned
    """

    tokens: int
    rows: int
    longest_growth: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one pass for one request, and what it took.

    rows     the raw logits of the whole pass, (n, V), in memory that no later pass writes to: readings look at them when asked
    part     those at its nodes; None if only a part of the prompt was fed: ask again
    cache_bytes, weight_bytes   bytes read of its cache, and of weights, which all requests of the pass share
    waste    None in batches without padding;   passes  forward passes that it took
    """

    rows: Logits
    part: slice | None
    cache_bytes: int
    weight_bytes: int
    waste: Waste | None = None
    passes: int = 1

    @property
    def logits(self) -> Logits | None:
        """The raw logits (nodes, V) at its nodes."""
        return None if self.part is None else self.rows[self.part]


def of_one_pass(answers: Sequence[Answer]) -> list[Answer]:
    """Answers that have rows of their own, over the rows of all together."""
    parts = [answer.logits for answer in answers if answer.logits is not None]
    rows, together, start = torch.cat(parts) if parts else answers[0].rows, [], 0
    for answer in answers:
        part = None if answer.part is None else slice(start, start := start + len(answer.rows[answer.part]))
        together.append(replace(answer, rows=rows, part=part))
    return together
