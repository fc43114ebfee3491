"""Dynamic-width speculative beam decoding (DSBD): a draft model drafts beam sampling's layers.

Source:
    Qin et al. 2024 (arXiv 2409.16560), section 3.
"""

import itertools
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from decoders.beams import Beam, BeamDraw, Joint, commit_beams, draw_beams, drawn_trials
from decoders.distribution import Distribution
from decoders.reading import Reading
from decoders.request import Ask, RandomSource, Request
from decoders.settings import Criterion, Decoding, Law, Method, claim, setting
from decoders.shapes import NodeId
from decoders.theory import Refusals, beam_acceptances, dynamic_width
from decoders.trace import Fate, Trial


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of the draft forest.

    Attributes:
        draws: its draws; the `parent` of a draw is a row of q_beam
        q_beam: the distribution over (row, token) pairs that they were drawn from
        parents: for each row of q_beam, the index in the layer above of the beam that it continues
    """

    draws: list[BeamDraw]
    q_beam: Distribution
    parents: list[int]


def accept_layer(
    source: RandomSource,
    trials: Sequence[Trial],
    places: Sequence[int | None],
    refusals: Refusals,
    width: int,
) -> tuple[set[int], int]:
    """The inner loop of algorithm 1: try draws from q_beam in turn until `width` are accepted.

    Args:
        trials: the trials of the draws, which are filled in
        places: index of each draw in p_beam and q_beam; a draw with None, whose parent is not live,
            is skipped
        refusals: the target's distribution over (beam, token) pairs, and the one that they were
            drawn from
        width: W_L

    Returns:
        The indices of the accepted draws, and how many were refused since the last of them.
    """
    accepted: set[int] = set()
    refused = 0
    for i, (place, trial) in enumerate(zip(places, trials, strict=True)):
        if place is None or len(accepted) == width:
            continue
        (taken, rest), trial.q = refusals.after(refused), refusals.q[place]
        trial.p = max(0.0, refusals.p[place] - taken * trial.q) / rest
        trial.accept_probability = min(1.0, trial.p / trial.q)
        passes, trial.u = source.accept(trial.accept_probability)
        if passes:
            trial.fate = Fate.ACCEPTED
            accepted.add(i)
            refused = 0
        else:
            trial.fate = Fate.REJECTED
            # If nothing is left, only rounding can have caused the refusal.
            refused += refusals.after(refused + 1)[1] > 0
    return accepted, refused


@dataclass(frozen=True)
class DSBD(Method):
    name = "dsbd"
    title = "DSBD"
    stands_for = "dynamic-width speculative beam decoding"
    paper, section = "Qin et al. 2024 (DSBD)", "3"
    summary = (
        "The small model drafts a forest of beams, the large one verifies it layer by layer: beam "
        "sampling in fewer passes."
    )
    uses_draft = True

    draft_length: int = setting(2, "layers drafted per round (gamma)", low=1, high=16)
    draft_beams: int = setting(4, "beams the draft model draws per layer (W_S)", low=1, high=64)
    beams: int | None = setting(
        None,
        "beams of the target per layer (W_L); empty: as many as are likely to be accepted",
        low=1,
        high=64,
        choices=(None,),
    )
    width_threshold: float = setting(
        0.9,
        "with a dynamic width, the chance that a whole layer is accepted (t)",
        low=0.0,
        high=1.0,
    )
    min_beams: int = setting(
        1, "with a dynamic width, the fewest beams of a layer (W_min)", low=1, high=64
    )
    keep_one: bool = setting(
        False, "continue from the best beam only, which saves memory (§3.4)", choices=(False, True)
    )

    criterion = Criterion(
        "p and q are joint here: of a beam and its next token, among all continuations of all "
        "beams. After a refusal, p is the probability left."
    )

    @claim
    def law(self) -> Law:
        return Law.PER_LAYER if self.beams is None or self.keep_one else Law.BEAM_SAMPLING

    @property
    def branches(self) -> tuple[int, int]:
        width = max(self.draft_beams, self.beams or self.min_beams)
        return width, width * (self.draft_length + 1)

    def decode(self, request: Request) -> Decoding:
        live = [Beam(request.tip, 0.0)]
        ended: list[Beam] = []
        while not request.finished:
            forest = yield from self._draft(request, live)
            nodes = dict.fromkeys(
                [b.node for b in live] + [d.beam.node for layer in forest for d in layer.draws]
            )
            readings = yield request.ask("target", list(nodes))
            trials, beams = self._verify(
                request, live, forest, dict(zip(nodes, readings, strict=True)), ended
            )
            yield commit_beams(request, trials, beams, live, ended, self.keep_one)

    def _draft(
        self, request: Request, live: list[Beam]
    ) -> Generator[Ask, list[Reading], list[Layer]]:
        """gamma steps of beam sampling by the draft model.

        The target's joint likelihoods weight the input beams: any known proposal is valid, and this
        one is accepted more often than one with the draft model's own weights.
        """
        forest: list[Layer] = []
        above, parents = live, list(range(len(live)))
        for _ in range(
            min(self.draft_length, request.budget - request.tree.new_length(live[0].node) - 1)
        ):
            joint = Joint(above, (yield request.ask("draft", [b.node for b in above])))
            q_beam = joint.warp(request.warping)
            draws = draw_beams(request, joint, q_beam, self.draft_beams)
            forest.append(Layer(draws, q_beam, parents))
            parents = [i for i, d in enumerate(draws) if not request.ends(d.beam.node)]
            above = [draws[i].beam for i in parents]
            if not above:
                break
        return forest

    def _verify(
        self,
        request: Request,
        live: list[Beam],
        forest: list[Layer],
        p: dict[NodeId, Reading],
        ended: list[Beam],
    ) -> tuple[list[Trial], list[Beam]]:
        """Algorithm 1, with its inverted ratio corrected: every trial, and the last layer's beams.

        Beams that ended in an earlier layer are added to `ended`.
        """
        parents = request.tree.parents
        trials = [
            [Trial(d.beam.node, d.token, parents[d.beam.node], Fate.DISCARDED) for d in layer.draws]
            for layer in forest
        ]
        tried = list(itertools.chain.from_iterable(trials))
        # From the index in the layer above to a live beam with the target's score.
        above = dict(enumerate(live))
        width = self.beams or max(self.min_beams, len(live))
        for layer, layer_trials in zip(forest, trials, strict=True):
            joint, p_beam = self._target(request, above, p)
            # q_beam of the draws with live parents, renormalised and never warped again, with rows
            # in the order of p_beam.
            rows = {layer.parents.index(i): row for row, i in enumerate(above)}
            q_beam = layer.q_beam.regrouped(rows, joint.size)
            places = [
                rows[d.parent] * joint.size + d.token if d.parent in rows else None
                for d in layer.draws
            ]
            surviving = sum(place is not None for place in places)
            refusals = Refusals(p_beam, q_beam)
            if self.beams is None:
                alphas = beam_acceptances(refusals, surviving)
                width = dynamic_width(alphas, self.width_threshold, self.min_beams)
            indices, refused = accept_layer(request.source, layer_trials, places, refusals, width)
            accepted = {
                i: Beam(d.beam.node, joint.origin + joint.value(place))
                for i, (d, place) in enumerate(zip(layer.draws, places, strict=True))
                if i in indices and place is not None
            }
            if len(accepted) < width:
                draws = draw_beams(request, joint, refusals.left(refused), 1)
                draws += draw_beams(request, joint, p_beam, width - len(accepted) - 1)
                first = Fate.CORRECTED if surviving else Fate.SAMPLED
                fates = [first] + [Fate.SAMPLED] * (len(draws) - 1)
                tried += drawn_trials(joint, draws, p_beam, fates)
                return tried, [*accepted.values(), *(d.beam for d in draws)]
            above = {i: b for i, b in accepted.items() if not request.ends(b.node)}
            ended += [b for i, b in accepted.items() if i not in above]
            if not above:
                return tried, []
        joint, p_beam = self._target(request, above, p)
        draws = draw_beams(request, joint, p_beam, width)
        fates = [Fate.BONUS if forest else Fate.SAMPLED] * len(draws)
        tried += drawn_trials(joint, draws, p_beam, fates)
        return tried, [d.beam for d in draws]

    def _target(
        self, request: Request, above: dict[int, Beam], p: dict[NodeId, Reading]
    ) -> tuple[Joint, Distribution]:
        joint = Joint(list(above.values()), [p[b.node] for b in above.values()])
        return joint, joint.warp(request.warping)
