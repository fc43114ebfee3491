"""Multi-token joint decoding (MTJD; MJGD if greedy): commits several tokens at a time.

The target chooses them by their joint likelihood.

Source:
    Qin et al. 2024 (MTAD, arXiv 2407.09722), section 3.1.
"""

from dataclasses import dataclass

from decoders.beams import likeliest_path
from decoders.errors import InputError
from decoders.request import Request
from decoders.settings import Decoding, Method, setting
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
