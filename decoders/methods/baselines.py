"""The baselines, which ask the target alone: sampling, beam search and beam sampling.

Source:
    Qin et al. 2024 (MTAD, arXiv 2407.09722), section 2.1, for the beams.
"""

from dataclasses import dataclass, replace

from decoders.beams import Beam, Joint, commit_beams, draw_beams, drawn_trials
from decoders.methods.parts import sample
from decoders.request import Request
from decoders.settings import Decoding, Law, Method, setting
from decoders.trace import Fate, Trial
from decoders.warp import Warping


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
    law = None
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
        live, steps = [Beam(request.tip, 0.0)], 0
        done: list[Beam] = []
        # Enough candidates for W live beams even if every kept beam ends now. One beam is greedy:
        # it ends with its first end of text.
        candidates = max(2, 1 + len(request.end_tokens)) * self.beams if self.beams > 1 else 1
        while not request.finished:
            readings = yield request.ask("target", [b.node for b in live], candidates)
            joint = Joint(live, readings, origin=0.0, rounded=True)
            steps += 1
            drawn = [joint.draw(request, *entry).beam for entry in joint.top(candidates)]
            reason = {
                b.node: request.ends(b.node) or ("budget" if steps == request.budget else None)
                for b in drawn
            }
            ended = [b for b in drawn[: self.beams] if reason[b.node]]
            live = [b for b in drawn if not reason[b.node]][: self.beams]
            done = sorted(
                [*done, *(self._scored(b, steps) for b in ended)], key=lambda b: -b.score
            )[: self.beams]
            full = len(done) == self.beams
            horizon = (
                request.budget
                if self.early_stopping == "never" and self.length_penalty > 0
                else steps
            )
            hopeless = full and not (live and self._scored(live[0], horizon).score > done[-1].score)
            over = not live or hopeless or (self.early_stopping is True and full)
            answer = (done if over else live)[0].node
            trials = [
                Trial(
                    b.node, request.tree.tokens[b.node], request.tree.parents[b.node], Fate.SEARCHED
                )
                for b in [*live, *ended]
            ]
            yield request.commit(
                trials,
                [b.node for b in live] or [answer],
                answer,
                finished=(request.ends(answer) or "budget") if over else None,
                provisional=True,
            )

    def _scored(self, beam: Beam, length: int) -> Beam:
        return Beam(beam.node, beam.score / length**self.length_penalty)
