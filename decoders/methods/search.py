"""The layers of beam search (Search): one definition for all decoders that give its beams.

Source:
    Qin et al. 2024 (MTAD, arXiv 2407.09722), section 2.1; `transformers`' generate(num_beams=W).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from decoders.beams import Beam, Joint
from decoders.reading import Reading
from decoders.request import Request
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
