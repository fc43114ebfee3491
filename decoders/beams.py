"""Beams: a multiset of tree nodes with raw joint log-likelihoods, and the steps of beam sampling and beam search on them.

Draft and target beams are the same thing; the caller decides which model scores them.
"""

import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

import torch

from decoders.request import Ask, Request
from decoders.shapes import Logits, NodeId, Probs, TokenId
from decoders.trace import Fate, Round, Trial
from decoders.warp import top


@dataclass(frozen=True, slots=True)
class Beam:
    """A node, and the raw joint log-likelihood (nats) of the tokens from where the beams began to it."""

    node: NodeId
    score: float


@dataclass(frozen=True, slots=True)
class BeamDraw:
    """A continuation of one beam. `parent` is the index of that beam: equal beams share a node, and one of them may live without the other."""

    parent: int
    token: TokenId
    beam: Beam


def highest(beams: Iterable[Beam]) -> float:
    """Their highest score; 0 if they are all impossible."""
    score = max(b.score for b in beams)
    return score if score > -math.inf else 0.0


def joint(beams: Sequence[Beam], logits: Logits, origin: float | None = None) -> torch.Tensor:
    """The raw joint log-likelihoods (W, V) of every continuation (mtad.txt eq. 2, dsbd.txt eq. 1, before normalising), less `origin`,
    by default the beams' highest score: the score of a long text would leave float32 no digits to tell its continuations apart."""
    origin = highest(beams) if origin is None else origin
    scores = torch.tensor([b.score - origin for b in beams], dtype=logits.dtype, device=logits.device)
    return logits.log_softmax(-1) + scores[:, None]


def beam_probs(request: Request, log_joint: torch.Tensor) -> Probs:
    """p_beam or q_beam, shape (W, V): the warping applied once, to the flattened joint."""
    return request.warp(log_joint.flatten()).view_as(log_joint)


def draw_beams(
    request: Request, beams: Sequence[Beam], log_joint: torch.Tensor, probs: Probs, count: int
) -> list[BeamDraw]:
    """`count` continuations, drawn i.i.d. with replacement from probs (W, V)."""
    return [extend(request, beams, log_joint, index) for index in request.source.draw(probs.flatten(), count)]


def extend(
    request: Request, beams: Sequence[Beam], log_joint: torch.Tensor, index: int, origin: float | None = None
) -> BeamDraw:
    """The continuation at this index of the flattened (W, V) joint, which was made with the same origin."""
    parent, token = divmod(index, log_joint.shape[-1])
    node = request.tree.add(beams[parent].node, token)
    origin = highest(beams) if origin is None else origin
    return BeamDraw(parent, token, Beam(node, origin + log_joint[parent, token].item()))


def best(request: Request, beams: Sequence[Beam]) -> Beam:
    """The beam with the lowest perplexity, exp(-score / length); the earliest of equals."""
    return max(beams, key=lambda b: b.score / request.tree.new_length(b.node))


def drawn_trials(beams: Sequence[Beam], draws: Sequence[BeamDraw], p_beam: Probs, fates: Sequence[Fate]) -> list[Trial]:
    """The trials of continuations drawn from the target's own p_beam (W, V)."""
    return [
        Trial(d.beam.node, d.token, beams[d.parent].node, fate, p=p_beam[d.parent, d.token].item())
        for d, fate in zip(draws, fates, strict=True)
    ]


def commit_beams(
    request: Request,
    trials: list[Trial],
    drawn: list[Beam],
    live: list[Beam],
    ended: list[Beam],
    keep_one: bool = False,
) -> Round:
    """Commit a layer of beams. Those that end are added to `ended`, the others become `live`; both lists change in place.

    keep_one   keep only the best live beam
    The answer is the best of all beams, provisional until none is live or the budget is spent. Yield the result.
    """
    live[:] = []
    for beam in drawn:
        (ended if request.ends(beam.node) else live).append(beam)
    if keep_one and live:
        live[:] = [best(request, live)]
    answer = best(request, [*ended, *live]).node
    over = not live or request.tree.new_length(live[0].node) >= request.budget
    finished = (request.ends(answer) or "budget") if over else None
    return request.commit(trials, [b.node for b in live] or [answer], answer, finished, provisional=True)


def likeliest_path(
    request: Request, model: str, width: int | None, steps: int, sampled: bool
) -> Generator[Ask, Logits, list[NodeId]]:
    """The path after the tip with the highest raw joint likelihood that beams of a model find: MTAD's draft, or, with the target as
    the model, a block of MTJD.

    width     draws per step of beam sampling, or beams kept by beam search; None keeps them all
    sampled   beam sampling rather than beam search
    A beam that ends keeps its score and competes with the others.
    """
    live, ended = [Beam(request.tip, 0.0)], []
    for _ in range(steps):
        log_joint = joint(live, (yield request.ask(model, [b.node for b in live])))
        if sampled:
            draws = draw_beams(request, live, log_joint, beam_probs(request, log_joint), width)
        else:
            order = top(log_joint.flatten(), width or log_joint.numel())[1]
            draws = [extend(request, live, log_joint, i) for i in order.tolist()]
        ended += [d.beam for d in draws if request.tree.tokens[d.beam.node] in request.end_tokens]
        live = [d.beam for d in draws if request.tree.tokens[d.beam.node] not in request.end_tokens]
        if not live:
            break
    winner = max([*ended, *live], key=lambda b: b.score)
    return request.tree.lineage(winner.node, request.tree.depths[request.tip] + 1)
