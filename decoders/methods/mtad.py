"""Tokens chosen by their joint likelihood: the target's own (MTJD), or those of a draft (MTAD).

MTJD is multi-token joint decoding (MJGD if greedy), MTAD is multi-token assisted decoding (first
called MJSD). MTAD keeps the longest prefix of a draft whose joint likelihood under the target is
not far below the draft model's.

Source:
    Qin et al. 2024 (MTAD, arXiv 2407.09722), section 3.
"""

from dataclasses import dataclass

from decoders.beams import likeliest_path
from decoders.errors import InputError
from decoders.methods.copies import Lookup
from decoders.methods.joint import THRESHOLD, keep_longest
from decoders.request import Request
from decoders.settings import Decoding, Method, claim, setting
from decoders.trace import Fate, Trial

MOST_SEQUENCES = 100_000


@dataclass(frozen=True)
class MTJD(Method):
    name = "mtjd"
    title = "MTJD"
    stands_for = "multi-token joint decoding"
    law = None
    paper, section = "Qin et al. 2024 (MTAD)", "3.1"
    summary = (
        "Chooses the next few tokens together, by their joint likelihood: likelier text, not "
        "faster."
    )

    block_length: int = setting(4, "tokens committed at a time (K)", low=1, high=64)
    beams: int = setting(8, "beams that search for them (W)", low=1, high=64)
    form: str = setting(
        "search",
        "how the beams are chosen: beam search or beam sampling",
        choices=("search", "sample"),
    )
    exact: bool = setting(
        False, "try every sequence of K tokens; for tiny vocabularies", choices=(False, True)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exact and self.form == "sample":
            raise InputError(
                "mtjd: exact needs form='search'; beam sampling does not try every sequence."
            )

    @property
    def branches(self) -> tuple[int, int]:
        return 1, 2 * MOST_SEQUENCES if self.exact else 1 + self.beams * self.block_length

    def refuse(self, vocabulary: int, budget: int) -> None:
        length = min(self.block_length, budget)
        if self.exact and vocabulary**length > MOST_SEQUENCES:
            raise InputError(
                f"mtjd: exact would try {vocabulary}**{length} sequences, more than "
                f"{MOST_SEQUENCES}; "
                "take a smaller block_length, or beams."
            )

    def decode(self, request: Request) -> Decoding:
        beams, sampled = None if self.exact else self.beams, self.form == "sample"
        while not request.finished:
            steps = min(self.block_length, request.left)
            path = yield from likeliest_path(request, "target", beams, steps, sampled)
            fate = Fate.SAMPLED if sampled else Fate.SEARCHED
            trials = [
                Trial(n, request.tree.tokens[n], parent, fate)
                for n, parent in zip(path, [request.tip, *path], strict=False)
            ]
            yield request.advance(trials, path[-1])


@dataclass(frozen=True)
class MTAD(Method):
    name = "mtad"
    title = "MTAD"
    stands_for = "multi-token assisted decoding"
    law = None
    paper, section = "Qin et al. 2024 (MTAD)", "3.2"
    summary = (
        "Keeps the longest prefix of the small model's best beam that the large model finds likely "
        "overall: fast, and usually likelier text than sampling."
    )

    draft_length: int = setting(4, "draft tokens per round (gamma)", low=1, high=64)
    beams: int = setting(8, "beams of the draft model (W)", low=1, high=64)
    threshold: float = THRESHOLD
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
