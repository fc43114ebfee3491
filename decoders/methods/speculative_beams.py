"""Speculative beam search: the beams of plain beam search in fewer passes of the target.

Source:
    The layer is beam search's own, and nothing of it is approximate. Drafted beams are DSBD's idea
    (Qin et al. 2024, arXiv 2409.16560); covering a search instead of sampling has no paper here.
"""

import itertools
import math
import statistics
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass

from decoders.beams import Beam, Joint
from decoders.errors import InputError
from decoders.methods.baselines import BeamSearch, Search, enough
from decoders.methods.budget import LONGEST, AutoLength, Count
from decoders.reading import Reading
from decoders.request import Ask, Request
from decoders.settings import Decoding, Law, claim, setting
from decoders.shapes import NodeId
from decoders.trace import Fate, Trial


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
        """The beam search whose beams these are."""
        return BeamSearch(self.beams, self.length_penalty, self.early_stopping)

    @property
    def draft_width(self) -> int:
        return self.draft_beams or self.beams

    @property
    def branches(self) -> tuple[int, int]:
        layers = LONGEST if isinstance(self.draft_length, str) else self.draft_length
        return self.beams, self.beams + layers * self.draft_width

    def decode(self, request: Request) -> Decoding:
        search, known = self.search(request), dict[NodeId, Reading]()
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
            counts.append(Count(len(drafts), search.steps - before - 1, share))
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
