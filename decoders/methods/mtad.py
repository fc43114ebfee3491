"""Multi-token assisted decoding (MTAD, first called MJSD): judges a draft's joint likelihood.

Source:
    Qin et al. 2024 (arXiv 2407.09722), section 3.2.
"""

from dataclasses import dataclass

from decoders.beams import likeliest_path
from decoders.drafts.lookup import Lookup
from decoders.request import Request
from decoders.rules.joint import keep_longest
from decoders.settings import Decoding, Method, claim, setting


@dataclass(frozen=True)
class MTAD(Method):
    name = "mtad"
    title = "MTAD"
    stands_for = "multi-token assisted decoding"
    law = None
    paper, section = "Qin et al. 2024 (MTAD)", "3.2"
    summary = (
        "Keeps the longest prefix of the small model's best beam that the large one finds likely "
        "as a whole: fast, and usually likelier text than sampling."
    )

    draft_length: int = setting(4, "draft tokens per round (gamma)", low=1, high=64)
    beams: int = setting(8, "beams of the draft model (W)", low=1, high=64)
    threshold: float = setting(
        0.1,
        "keep prefixes whose joint likelihood ratio min(1, p/q) is above this (tau)",
        low=0.0,
        high=1.0,
    )
    ratio: str = setting(
        "warped", "the distributions compared: warped as sampled, or raw", choices=("warped", "raw")
    )
    draft: str = setting(
        "sample",
        "where drafts come from: sampled beams of the draft model, its beam search, or a copy of "
        "the text so far (no draft model)",
        choices=("sample", "search", "lookup"),
    )

    @claim
    def uses_draft(self) -> bool:
        return self.draft != "lookup"

    @property
    def branches(self) -> tuple[int, int]:
        return 1, 1 + self.beams * self.draft_length

    def decode(self, request: Request) -> Decoding:
        lookup = (
            Lookup(request, match=2, copy=self.draft_length) if self.draft == "lookup" else None
        )
        while not request.finished:
            if lookup:
                path = (yield from lookup.propose(request)).nodes[1:]
            else:
                steps = min(self.draft_length, request.left - 1)
                path = yield from likeliest_path(
                    request, "draft", self.beams, steps, self.draft == "sample"
                )
            p = yield request.ask("target", [request.tip, *path])
            q = (
                (yield request.ask("draft", [request.tip, *path[:-1]]))
                if path and not lookup
                else None
            )
            yield request.advance(
                *keep_longest(request, path, p, q, self.threshold, self.ratio == "warped")
            )
