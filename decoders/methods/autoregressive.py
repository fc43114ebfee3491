"""The baselines: one token at a time."""

from dataclasses import dataclass, replace

from decoders.laws import Law
from decoders.request import Request
from decoders.settings import Decoding, Method
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
            drawn = yield request.draw("target", request.tip, min(request.ahead, request.left))
            trials = [Trial(d.node, d.token, d.parent, Fate.SAMPLED, p=d.q[d.token]) for d in drawn]
            yield request.advance(trials, drawn[-1].node)


@dataclass(frozen=True)
class Greedy(Multinomial):
    name = "greedy"
    title = "Greedy"
    summary = "Takes the likeliest token each time: plain sampling at temperature 0."

    def warping(self, warping: Warping) -> Warping:
        return replace(warping, temperature=0.0)
