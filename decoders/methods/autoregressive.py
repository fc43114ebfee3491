"""One token at a time: the baselines."""

from dataclasses import dataclass, replace

from decoders.request import Request
from decoders.settings import Decoding, Method
from decoders.trace import Fate, Trial
from decoders.warp import Warping


@dataclass(frozen=True)
class Multinomial(Method):
    name = "multinomial"
    title = "Plain sampling"
    law = "target"
    paper, section = "Leviathan et al. 2023", "2.2"
    summary = "Draws each token at random, each as often as the large model finds it likely."

    def decode(self, request: Request) -> Decoding:
        while not request.finished:
            for drawn in (yield request.draw("target", request.tip, min(request.ahead, request.left))):
                trial = Trial(drawn.node, drawn.token, drawn.parent, Fate.SAMPLED, p=drawn.q[drawn.token])
                yield request.advance([trial], drawn.node)
                if request.finished:  # by a stop string: what was drawn after it is dropped
                    break


@dataclass(frozen=True)
class Greedy(Multinomial):
    name = "greedy"
    title = "Greedy"
    summary = "Takes the likeliest token each time: plain sampling at temperature 0."

    def warping(self, warping: Warping) -> Warping:
        return replace(warping, temperature=0.0)
