"""The baselines, which ask the target alone: sampling, beam search and beam sampling.

Source:
    Qin et al. 2024 (MTAD, arXiv 2407.09722), section 2.1, for the beams.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from decoders.beams import Beam, Joint, commit_beams, draw_beams, drawn_trials
from decoders.distribution import Warping
from decoders.methods.rules import sample
from decoders.methods.search import Search, enough
from decoders.request import Request
from decoders.settings import Criterion, Decoding, Law, Method, setting
from decoders.trace import Fate


@dataclass(frozen=True)
class Multinomial(Method):
    name = "multinomial"
    title = "Plain sampling"
    law = Law.TARGET
    paper, section = "Leviathan et al. 2023", "2.2"
    summary = "Samples each token from the large model."

    def decode(self, request: Request) -> Decoding:
        while not request.finished:
            yield from sample(request, request.left)


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
