"""The baselines, which ask the target alone: sampling, beam search and beam sampling.

The layers of beam search are one definition (Search) for all decoders that give its beams.

Source:
    Qin et al. 2024 (MTAD, arXiv 2407.09722), section 2.1, for the beams; `transformers`'
    generate(num_beams=W).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from decoders.beams import Beam, Joint, commit_beams, draw_beams, drawn_trials
from decoders.distribution import Warping
from decoders.reading import Reading
from decoders.request import Request
from decoders.settings import Criterion, Decoding, Law, Method, setting
from decoders.shapes import NodeId
from decoders.trace import Fate, Round, Trial


@dataclass(eq=False)
class Search:
    """The beams of one request.

    Attributes:
        request: the request being decoded
        width: W, the most beams of a layer
        length_penalty: scores of finished beams are divided by length to this power
        early_stopping: False, True or "never", see `BeamSearch`
        live: the beams that continue, the likeliest first
        done: the best finished beams, at most W, with their scores by length
        steps: layers so far
        over: whether no other layer follows
    """

    request: Request
    width: int
    length_penalty: float
    early_stopping: bool | str
    live: list[Beam] = field(default_factory=list)
    done: list[Beam] = field(default_factory=list)
    steps: int = 0
    over: bool = False

    def __post_init__(self) -> None:
        self.live = [Beam(self.request.tip, 0.0)]

    @property
    def nodes(self) -> list[NodeId]:
        return [b.node for b in self.live]

    def layer(self, readings: Sequence[Reading]) -> list[Beam]:
        """Search one layer.

        Args:
            readings: the target's after each live beam

        Returns:
            The beams of the layer: those that continue, then those that end.
        """
        request, budget = self.request, self.request.budget
        joint = Joint(self.live, readings, origin=0.0, rounded=True)
        self.steps += 1
        last, ended, self.live = self.steps == budget, list[Beam](), list[Beam]()
        for place, entry in enumerate(joint.top(enough(request, self.width))):
            beam = joint.draw(request, *entry).beam
            if not (last or request.ends(beam.node)):
                self.live.append(beam)
            elif place < self.width:
                ended.append(beam)
            if place + 1 >= self.width and (last or len(self.live) == self.width):
                break
        self.done = sorted(
            [*self.done, *(self._scored(b, self.steps) for b in ended)], key=lambda b: -b.score
        )[: self.width]
        full = len(self.done) == self.width
        horizon = (
            budget if self.early_stopping == "never" and self.length_penalty > 0 else self.steps
        )
        hopeless = full and not (
            self.live and self._scored(self.live[0], horizon).score > self.done[-1].score
        )
        self.over = not self.live or hopeless or (self.early_stopping is True and full)
        return [*self.live, *ended]

    def trial(self, node: NodeId, fate: Fate = Fate.SEARCHED) -> Trial:
        tree = self.request.tree
        return Trial(node, tree.tokens[node], tree.parents[node], fate)

    def commit(self, trials: list[Trial]) -> Round:
        """Commit the layers searched since the last round; the answer is the best beam so far.

        Args:
            trials: everything that was tried in this round
        """
        request, answer = self.request, (self.done if self.over else self.live)[0].node
        return request.commit(
            trials,
            self.nodes or [answer],
            answer,
            finished=(request.ends(answer) or "budget") if self.over else None,
            provisional=True,
        )

    def _scored(self, beam: Beam, length: int) -> Beam:
        return Beam(beam.node, beam.score / length**self.length_penalty)


def enough(request: Request, width: int) -> int:
    """How many continuations hold `width` live beams, even if every kept one ends now.

    One beam is greedy: it ends with its first end of text.
    """
    return max(2, 1 + len(request.end_tokens)) * width if width > 1 else 1


@dataclass(frozen=True)
class Multinomial(Method):
    name = "multinomial"
    title = "Plain sampling"
    law = Law.TARGET
    paper, section = "Leviathan et al. 2023", "2.2"
    summary = "Samples each token from the large model."

    def decode(self, request: Request) -> Decoding:
        return request.alone()


@dataclass(frozen=True)
class Greedy(Multinomial):
    name = "greedy"
    title = "Greedy"
    summary = "Takes the likeliest token each time: plain sampling at temperature 0."

    def warping(self, warping: Warping) -> Warping:
        return replace(warping, temperature=0.0)


@dataclass(frozen=True)
class BeamSampling(Method):
    name = "beam_sampling"
    title = "Beam sampling"
    law = Law.BEAM_SAMPLING
    paper, section = "Qin et al. 2024 (MTAD, DSBD)", "2.1"
    summary = (
        "Draws several continuations per step by their joint likelihood; the likeliest sequence is "
        "the answer."
    )

    criterion = Criterion(
        "p is joint here: of a beam and its next token, among all continuations of all beams."
    )

    beams: int = setting(4, "beams drawn per step, with replacement", low=1, high=64)

    @property
    def branches(self) -> tuple[int, int]:
        return self.beams, self.beams

    def decode(self, request: Request) -> Decoding:
        live = [Beam(request.tip, 0.0)]
        ended: list[Beam] = []
        while not request.finished:
            joint = Joint(live, (yield request.ask("target", [b.node for b in live])))
            p_beam = joint.warp(request.warping)
            draws = draw_beams(request, joint, p_beam, self.beams)
            trials = drawn_trials(joint, draws, p_beam, [Fate.SAMPLED] * len(draws))
            yield commit_beams(request, trials, [d.beam for d in draws], live, ended)


@dataclass(frozen=True)
class BeamSearch(Method):
    """The beam search of `transformers`' generate(num_beams=W, do_sample=False).

    Scores are whole log-likelihoods in float32, as there. Equal scores are ordered by beam and
    token id.
    """

    name = "beam_search"
    title = "Beam search"
    law: ClassVar[Law | None] = None
    paper, section = "Qin et al. 2024 (MTAD)", "2.1"
    summary = "Keeps the likeliest continuations of each step and returns the best of them."

    beams: int = setting(4, "beams kept per step", low=1, high=64)
    length_penalty: float = setting(
        1.0,
        "scores are divided by length to this power: above 0 favours longer texts",
        low=-10.0,
        high=10.0,
    )
    early_stopping: bool | str = setting(
        False,
        "when to stop: False, by a heuristic; True, at W finished beams; 'never', when none can "
        "improve",
        choices=(False, True, "never"),
    )

    @property
    def branches(self) -> tuple[int, int]:
        return self.beams, self.beams

    def search(self, request: Request) -> Search:
        """The search of a request before its first layer."""
        return Search(request, self.beams, self.length_penalty, self.early_stopping)

    def decode(self, request: Request) -> Decoding:
        search = self.search(request)
        while not request.finished:
            readings = yield request.ask("target", search.nodes, enough(request, self.beams))
            yield search.commit([search.trial(b.node) for b in search.layer(readings)])
