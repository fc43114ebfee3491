"""Block verification: a draft is judged as a whole.

This keeps more of it than judging token by token, and never less.

Source:
    Sun et al. 2024 (arXiv 2403.10444), algorithm 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from decoders.distribution import Distribution, minimum, residual
from decoders.drafts import Draft, chain
from decoders.methods.speculative import DRAFT_LENGTH
from decoders.request import Request
from decoders.settings import Decoding, Law, Method
from decoders.shapes import NodeId
from decoders.trace import Fate, Trial


@dataclass(frozen=True)
class BlockVerification(Method):
    name = "block"
    title = "Block verification"
    law = Law.TARGET
    paper, section = "Sun et al. 2024 (block verification)", "algorithm 2"
    summary = (
        "Judges a draft as a whole instead of token by token, so more of it is kept: the same text "
        "in fewer passes."
    )
    uses_draft = True

    draft_length: int = DRAFT_LENGTH

    def decode(self, request: Request) -> Decoding:
        while not request.finished:
            draft = yield from chain(request, self.draft_length)
            readings = yield request.ask("target", draft.nodes)
            yield request.advance(
                *verify(request, draft, [request.warp(reading) for reading in readings])
            )


def verify(request: Request, draft: Draft, p: Sequence[Distribution]) -> tuple[list[Trial], NodeId]:
    """Algorithm 2; the longest accepted prefix is sought from the end, with fewer random numbers.

    Args:
        request: the request being decoded
        draft: a chain
        p: the target's distributions at the root and after each draft token

    Returns:
        Every trial, and the new tip.
    """
    draws, source, q = draft.draws, request.source, [draft.q[d.parent] for d in draft.draws]
    # p_i of the paper: how likely the target finds the first i tokens, compared with the draft
    # model; at most 1.
    weights = [1.0]
    trials = []
    for i, d in enumerate(draws):
        weights.append(min(1.0, weights[-1] * (p[i][d.token] / q[i][d.token])))
        trials.append(
            Trial(d.node, d.token, d.parent, Fate.DISCARDED, p[i][d.token], q[i][d.token])
        )
    kept = len(draws)
    while kept:
        chance = w = weights[kept]
        if kept < len(draws):
            left = max(0.0, w - minimum(w * p[kept], q[kept]).total)  # the sum of max(0, w p - q)
            chance = left / (left + 1 - w) if left else 0.0
        accepted, u = source.accept(chance)
        trials[kept - 1].accept_probability, trials[kept - 1].u = chance, u
        if accepted:
            break
        kept -= 1
    for trial in trials[:kept]:
        trial.fate = Fate.ACCEPTED
    after = draws[kept - 1].node if kept else draft.root
    if kept < len(draws):
        trials[kept].fate, fate, rest = (
            Fate.REJECTED,
            Fate.CORRECTED,
            residual(weights[kept] * p[kept], q[kept]),
        )
    else:
        fate, rest = (Fate.BONUS if draws else Fate.SAMPLED), p[kept]
    own, tip = request.sample(after, fate, rest, p[kept])
    return [*trials, *own], tip
