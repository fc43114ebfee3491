"""The tokens that the requests of a batch run gained per round, read as acceptance lengths.

Source:
    Ni et al. 2024 (EMS-SD, arXiv 2405.07542), appendix B.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from decoders.theory import Padding
from workbench.runs.estimates import BatchFigures, label
from workbench.runs.record import Run
from workbench.show.spread import padding_ratio


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """The acceptance lengths tau of one decoder, which do not depend on the batch.

    Attributes:
        decoder: its name
        lengths: every tau
        means: the mean of each sample
        gained: by batch size, for each round of a batch the tau of its requests
        ratios: by batch size, the padding ratio of the vanilla scheme (equation 10)
    """

    decoder: str
    lengths: Sequence[int]
    means: Sequence[float]
    gained: Mapping[int, Sequence[Sequence[int]]]
    ratios: Mapping[int, float]

    @property
    def mean(self) -> float:
        return fmean(self.means)

    @property
    def deviation(self) -> float:
        """Sample standard deviation of the samples' means."""
        return stdev(self.means)

    @property
    def cap(self) -> int:
        """The longest acceptance seen."""
        return max(self.lengths)

    @property
    def p(self) -> float:
        """Next-token accuracy: the likeliest value if every tau is geometric up to the cap.

        A tau of k has k - 1 right tokens and, below the cap, a wrong one.
        """
        cap = self.cap
        right, wrong = sum(tau - 1 for tau in self.lengths), sum(tau < cap for tau in self.lengths)
        return right / (right + wrong) if right + wrong else 0.0

    def padding(self, size: int) -> Padding | None:
        """The cost of padding for batches of this size per round, by their acceptance lengths.

        None if no batch has this size.
        """
        rounds = [taus for taus in self.gained.get(size, []) if max(taus) > 0]
        if not rounds:
            return None
        longest = [max(taus) for taus in rounds]
        pads = [most - fmean(taus) for most, taus in zip(longest, rounds, strict=True)]
        ratios = [1 - tau / max(taus) for taus in rounds for tau in taus]
        return Padding(fmean(longest), fmean(pads), fmean(ratios))

    def longest(self, size: int, cap: int) -> list[float] | None:
        """The share of rounds whose longest acceptance is k = 1 .. cap (equation 11).

        Longer ones count as the cap. None if no batch has this size.
        """
        rounds = Counter(min(max(taus), cap) for taus in self.gained.get(size, []) if max(taus) > 0)
        return [rounds[k] / rounds.total() for k in range(1, cap + 1)] if rounds else None


def batches(run: Run) -> tuple[MeasuredBatch, ...]:
    """The measurements of a run over several prompts, for each decoder with acceptance lengths."""
    figures = BatchFigures(run)
    return tuple(
        MeasuredBatch(
            label(decoder),
            [tau for rounds in figures.acceptances[decoder] for tau in rounds if tau > 0],
            means,
            {size: figures.rounds(decoder, size) for size in figures.sizes},
            {
                size: ratio
                for size in figures.sizes
                if (ratio := padding_ratio(figures, decoder, size)) is not None
            },
        )
        for decoder in figures.decoders
        if len(means := figures.mean_acceptances(decoder)) > 1
    )
