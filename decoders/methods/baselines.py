"""Beams and samples of the target: sampling, beam search, beam sampling, speculative beam search.

The layers of beam search are one definition (Search) for all decoders that give its beams. Of a
speculative layer nothing is approximate.

Source:
    Qin et al. 2024 (MTAD, arXiv 2407.09722), section 2.1, for the beams; `transformers`'
    generate(num_beams=W). Drafted beams are DSBD's idea (Qin et al. 2024, arXiv 2409.16560);
    covering a search instead of sampling has no paper here.
"""

import itertools
import math
import statistics
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from decoders.beams import Beam, Joint, commit_beams, draw_beams, drawn_trials
from decoders.distribution import Warping
from decoders.errors import InputError
from decoders.methods.budget import LONGEST, AutoLength, Count
from decoders.reading import Reading
from decoders.request import Ask, Request
from decoders.settings import Criterion, Decoding, Law, Method, claim, setting
from decoders.shapes import NodeId
from decoders.trace import Fate, Round, Trial


@dataclass(eq=False)
class Search:
    """The beams of one request.

    Attributes:
        request: the request being decoded
        settings: the decoder's
        live: the beams that continue, the likeliest first
        done: the best finished beams, at most W, with their scores by length
        steps: layers so far
        over: whether no other layer follows
    """

    request: Request
    settings: "BeamSearch"
    live: list[Beam]
    done: list[Beam] = field(default_factory=list)
    steps: int = 0
    over: bool = False

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
        request, budget, width = self.request, self.request.budget, self.settings.beams
        joint = Joint(self.live, readings, origin=0.0, rounded=True)
        self.steps += 1
        last, ended, self.live = self.steps == budget, list[Beam](), list[Beam]()
        for place, entry in enumerate(joint.top(enough(request, width))):
            beam = joint.draw(request, *entry).beam
            if not (last or request.ends(beam.node)):
                self.live.append(beam)
            elif place < width:
                ended.append(beam)
            if place + 1 >= width and (last or len(self.live) == width):
                break
        self.done = sorted(
            [*self.done, *(self._scored(b, self.steps) for b in ended)], key=lambda b: -b.score
        )[:width]
        full, stopping = len(self.done) == width, self.settings.early_stopping
        never = stopping == "never" and self.settings.length_penalty > 0
        horizon = budget if never else self.steps
        hopeless = full and not (
            self.live and self._scored(self.live[0], horizon).score > self.done[-1].score
        )
        self.over = not self.live or hopeless or (stopping is True and full)
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
        return Beam(beam.node, beam.score / length**self.settings.length_penalty)


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

    def decode(self, request: Request) -> Decoding:
        search = Search(request, self, [Beam(request.tip, 0.0)])
        while not request.finished:
            readings = yield request.ask("target", search.nodes, enough(request, self.beams))
            yield search.commit([search.trial(b.node) for b in search.layer(readings)])


@dataclass(frozen=True)
class SpeculativeBeamSearch(BeamSearch):
    """Beam search whose next layers the draft guesses, so that one pass serves several.

    Raises:
        InputError: also if fewer beams are drafted than a layer has
    """

    name = "speculative_beam_search"
    title = "Speculative beam search"
    law = Law.BEAM_SEARCH
    paper, section = "Qin et al. 2024 (MTAD, DSBD)", "2.1"
    summary = (
        "The small model drafts the beams of the next layers, the large one reads all of them in "
        "one pass: exactly the beams of beam search."
    )

    draft_length: int | str = setting(
        "auto",
        "layers drafted per round (gamma); 'auto' takes what is quickest by the clock for all "
        "prompts together, perhaps none: the beams stay the same",
        low=1,
        high=LONGEST,
        choices=("auto",),
    )
    draft_beams: int | None = setting(
        None,
        "beams drafted per layer, at least those kept; empty: as many as are kept",
        low=1,
        high=64,
        choices=(None,),
    )
    draft: str = setting(
        "model", "who drafts: the draft model, or a head of the target", choices=("model", "head")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.draft_beams is not None and self.draft_beams < self.beams:
            raise InputError(
                f"{self.name}: draft_beams must be at least the {self.beams} beams kept per step, "
                f"not {self.draft_beams}; leave it empty, or keep fewer beams."
            )

    @claim
    def uses_draft(self) -> bool:
        return self.draft == "model"

    @claim
    def uses_head(self) -> bool:
        return self.draft == "head"

    @property
    def plain(self) -> BeamSearch:
        return BeamSearch(self.beams, self.length_penalty, self.early_stopping)

    @property
    def draft_width(self) -> int:
        return self.draft_beams or self.beams

    @property
    def branches(self) -> tuple[int, int]:
        layers = LONGEST if isinstance(self.draft_length, str) else self.draft_length
        return self.beams, self.beams + layers * self.draft_width

    def decode(self, request: Request) -> Decoding:
        search = Search(request, self, [Beam(request.tip, 0.0)])
        known: dict[NodeId, Reading] = {}
        counts: list[Count] = []  # of the layers of each round
        auto = AutoLength(request, lambda entry: counts[entry.index], start=1)
        while not request.finished:
            length = auto() if isinstance(self.draft_length, str) else self.draft_length
            drafts = yield from self._draft(request, search, known, length)
            nodes = list(dict.fromkeys([*search.nodes, *itertools.chain(*drafts)]))
            readings = yield request.ask("target", nodes, enough(request, self.draft_width))
            known = dict(zip(nodes, readings, strict=True))
            beams, parents, before = list[Beam](), set[NodeId](), search.steps
            while not search.over and known.keys() >= set(search.nodes):
                parents.update(search.nodes)
                beams += search.layer([known[node] for node in search.nodes])
            share = (
                statistics.fmean(node in known for node in search.nodes) if search.nodes else 0.0
            )
            counts.append((len(drafts), search.steps - before - 1, share))
            yield search.commit(judged(search, beams, list(itertools.chain(*drafts)), parents))

    def _draft(
        self, request: Request, search: Search, known: Mapping[NodeId, Reading], length: int
    ) -> Generator[Ask, list[Reading], list[list[NodeId]]]:
        """Layers below the live beams, as a beam search by the draft finds them.

        The live beams have the target's scores, and after those that the last pass has covered the
        target's readings are known already. No drafted beam ends: what ends is not read.

        Args:
            request: the request being decoded
            search: the target's search so far
            known: the target's readings of the last pass
            length: most layers
        """
        above, width, layers = search.live, self.draft_width, list[list[NodeId]]()
        count, drafter = enough(request, width), "head" if self.uses_head else "draft"
        for _ in range(min(length, request.budget - search.steps - 1)):
            nodes = [b.node for b in above if b.node not in known]
            said = dict(zip(nodes, (yield request.ask(drafter, nodes, count)), strict=True))
            joint = Joint(above, [known.get(b.node) or said[b.node] for b in above])
            beams = (joint.draw(request, *entry).beam for entry in joint.top(count))
            going = (b for b in beams if b.score > -math.inf and not request.ends(b.node))
            above = list(itertools.islice(going, width))
            if not above:
                break
            layers.append([b.node for b in above])
        return layers


def judged(
    search: Search, beams: Sequence[Beam], drafted: Sequence[NodeId], parents: Collection[NodeId]
) -> list[Trial]:
    """Every trial of a round: the beams of its layers, then the drafted nodes that are none.

    Args:
        search: the search
        beams: the beams of all layers of the round
        drafted: the nodes that were drafted
        parents: the nodes below which the round has searched
    """
    ours, rest = {b.node for b in beams}, set(drafted)
    trials = [
        search.trial(b.node, Fate.ACCEPTED if b.node in rest else Fate.SEARCHED) for b in beams
    ]
    for node in drafted:
        if node not in ours:
            tested = search.request.tree.parents[node] in parents
            trials.append(search.trial(node, Fate.REJECTED if tested else Fate.DISCARDED))
    return trials
