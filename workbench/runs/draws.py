"""The draws of a run: trees of texts with counts, and whether they refute a law.

Draws are counted in cells of first tokens. The evidence against a law is the likelihood of the
draws so far under a mixture of other laws, divided by their likelihood under the law itself. If the
law is true, this ratio is a martingale that begins at 1, and the chance that it ever reaches
1 / level is at most the level (Ville 1939). So draws may be added as often as one likes, for any
reason. The mixture is a Dirichlet distribution around the law.

Source:
    Lindon and Malek 2022 (arXiv 2011.03567), section 2.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from decoders import catalog
from decoders.settings import Law
from workbench.runs.record import Piece, Prefix, Result, Run, Sample
from workbench.studies.study import BASELINE

# The least share of all texts in a cell: with at most twenty cells, a fault shows after some
# thousand draws.
LEAST = 0.05
# The least share of all texts that begin with a prefix whose probability is read from the target.
KNOWN = 0.005
DEPTH = 3  # tokens of a text that are compared
LEVEL = 1e-4  # the chance that any true law of a run is ever called unlike
SOUGHT = 0.1  # total variation of the faults that the mixture expects, and that `needed` draws find
# The share of cases in which they find them, and that quantile of the normal distribution.
FOUND, QUANTILE = 0.99, 2.3263

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Cells:
    """A partition of all texts by their first tokens.

    Attributes:
        numbers: for each prefix of the tree, the cell of the texts that begin with it and with none
            of the longer prefixes
        chances: the exact probability of each cell; they sum to 1. The last cell, of probability 0,
            holds the texts that the law rules out
        outside: the prefixes of which the law rules out all texts
    """

    numbers: Mapping[Tokens, int]
    chances: tuple[float, ...]
    outside: frozenset[Tokens] = frozenset()

    def counts(self, texts: Iterable[Tokens]) -> list[int]:
        counts = [0] * len(self.chances)
        for text in texts:
            counts[-1 if self.never(text) else self._number(text)] += 1
        return counts

    def never(self, text: Tokens) -> Tokens:
        """The beginning of a text that the law rules out; () if the law allows the text."""
        prefixes = (text[: length + 1] for length in range(len(text)))
        return next((prefix for prefix in prefixes if prefix in self.outside), ())

    def _number(self, text: Tokens) -> int:
        prefix: Tokens = ()
        while len(prefix) < len(text) and text[: len(prefix) + 1] in self.numbers:
            prefix = text[: len(prefix) + 1]
        return self.numbers[prefix]


def cells(law: Mapping[Tokens, float]) -> Cells:
    """Group the texts of a law into cells that hold LEAST of all texts each.

    The cells depend on the law alone, never on the draws: draws that are added later fall into the
    same cells. Texts that share a prefix, and continue with none of the longer ones, stay together;
    where they are fewer than LEAST, the next likeliest prefix joins them. Prefixes of probability 0
    belong to the last cell.
    """
    rest: dict[Tokens, float] = {(): 1.0}
    for prefix, p in sorted(law.items(), key=lambda each: len(each[0])):
        if p and prefix and prefix[:-1] in rest:
            rest[prefix] = p
            rest[prefix[:-1]] -= p
    groups: list[list[Tokens]] = []
    chances: list[float] = []
    for prefix in sorted(rest, key=rest.__getitem__, reverse=True):
        if not chances or chances[-1] >= LEAST:
            groups.append([])
            chances.append(0.0)
        groups[-1].append(prefix)
        chances[-1] += max(0.0, rest[prefix])
    if len(chances) > 1 and chances[-1] < LEAST:
        groups[-2:], chances[-2:] = [groups[-2] + groups[-1]], [chances[-2] + chances[-1]]
    total = sum(chances) or 1.0
    numbers = {prefix: i for i, group in enumerate(groups) for prefix in group}
    return Cells(
        numbers, (*(p / total for p in chances), 0.0), frozenset(x for x, p in law.items() if not p)
    )


def variation(counts: Sequence[int], chances: Sequence[float]) -> float:
    draws = sum(counts)
    return sum(abs(count / draws - p) for count, p in zip(counts, chances, strict=True)) / 2


def by_chance(draws: int, chances: Sequence[float]) -> float:
    """The mean total variation of as many exact draws, if each cell's count is nearly normal."""
    return math.fsum(math.sqrt(p * (1 - p) / (2 * math.pi * draws)) for p in chances)


def evidence(counts: Sequence[int], chances: Sequence[float]) -> float:
    """The log of the martingale for the counts of cells with these chances, all above 0."""
    draws, spread = sum(counts), _spread(len(chances))
    log_ratio = math.lgamma(spread) - math.lgamma(spread + draws)
    for count, p in zip(counts, chances, strict=True):
        log_ratio += math.lgamma(spread * p + count) - math.lgamma(spread * p) - count * math.log(p)
    return log_ratio


def _spread(cells: int) -> float:
    """The Dirichlet's concentration.

    Its laws lie (cells - 1) / spread from the centre, by chi-square on average; SOUGHT is at least
    4 SOUGHT^2 by the same measure, with equality where half of the mass moves to the other half.
    """
    return (cells - 1) / (4 * SOUGHT**2)


def p_value(counts: Sequence[int], chances: Sequence[float]) -> float | None:
    """A bound on the chance that draws from these chances ever give as much evidence against them.

    Returns:
        0 if a draw lies in a cell of chance 0, which is proof; None if one cell has all the
            probability, and for no draws
    """
    if any(count for count, p in zip(counts, chances, strict=True) if not p):
        return 0.0
    counts, chances = (
        [n for n, p in zip(counts, chances, strict=True) if p],
        [*filter(None, chances)],
    )
    known = len(chances) > 1 and any(counts)
    return math.exp(-max(0.0, evidence(counts, chances))) if known else None


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Correct p values for there being several of them.

    Each becomes a bound on the chance that any of the true laws looks so far off, whether or not
    their draws have seeds in common.

    Source:
        Holm 1979, A simple sequentially rejective multiple test procedure.
    """
    ordered = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    corrected, highest = list(p_values), 0.0
    for rank, (p, i) in enumerate(ordered):
        corrected[i] = highest = max(highest, min(1.0, (len(ordered) - rank) * p))
    return corrected


def needed(cells: int, laws: int = 1) -> int:
    """The draws that refute a law that is off by SOUGHT in at least FOUND of all cases.

    This holds whichever way the law is off. For n draws, Pearson's distance has a noncentral
    chi-square distribution (d = cells - 1, 4 n SOUGHT^2), and twice the evidence is about distance
    m / (1 + m) - d log(1 + m), with m = n / spread. The normal distribution's lower tail bounds
    that distribution's.

    Args:
        laws: laws tested together, for Holm's correction
    """
    degrees, enough = cells - 1, 2 * math.log(laws / LEVEL)
    for draws in range(100, 1_000_000, 10):
        shift, more = 4 * draws * SOUGHT**2, draws / _spread(cells)
        distance = degrees + shift - QUANTILE * math.sqrt(2 * (degrees + 2 * shift))
        if distance * more / (1 + more) - degrees * math.log1p(more) >= enough:
            return draws
    # `cells` makes at most twenty.
    raise ValueError(f"{cells} cells are too many")  # pragma: no cover


Compared = Literal["target", "first step", "own"]


@dataclass
class DrawNode:
    """A token of the tree.

    Attributes:
        id: vocabulary id; -1 for the root
        text: its text
        count: texts that begin with the tokens down to it
        ended: texts that end with it
        children: the tokens that follow, in the order in which they were first drawn
    """

    id: int = -1
    text: str = ""
    count: int = 0
    ended: int = 0
    children: dict[int, "DrawNode"] = field(default_factory=dict)

    @property
    def following(self) -> list["DrawNode"]:
        return sorted(self.children.values(), key=lambda child: -child.count)


def grown(texts: Iterable[Sequence[Piece]]) -> DrawNode:
    root = DrawNode()
    for text in texts:
        root.count += 1
        node = root
        for piece in text:
            node = node.children.setdefault(piece.id, DrawNode(piece.id, piece.text))
            node.count += 1
        node.ended += 1
    return root


def grouped(run: Run) -> dict[str, list[Result]]:
    groups: dict[str, list[Result]] = {}
    for result in run.results:
        groups.setdefault(result.decoder, []).append(result)
    return groups


def texts_of(results: Iterable[Result]) -> list[Sample]:
    """The samples that have tokens; those of a run that was stopped may be unfinished."""
    return [sample for result in results for sample in result.samples if sample.pieces]


def beginnings(run: Run) -> set[Tokens]:
    """The first tokens of all draws; of decoders that draw beams, those of their first step."""
    texts: set[Tokens] = set()
    for result in run.results:
        for sample in result.samples:
            if compared(result.decoder, run.settings) == "first step":
                texts |= {(token,) for token in sample.beams}
            elif sample.pieces:
                texts.add(tuple(piece.id for piece in sample.pieces[:DEPTH]))
    return texts


def seeds(results: Iterable[Result]) -> list[range]:
    ranges: list[range] = []
    for result in sorted(results, key=lambda result: result.seed):
        last = result.seed + len(result.samples)
        if ranges and result.seed <= ranges[-1].stop:
            ranges[-1] = range(ranges[-1].start, max(last, ranges[-1].stop))
        else:
            ranges.append(range(result.seed, last))
    return ranges


def counted(result: Result, depth: int) -> list[Sample]:
    """The draws that count when the first `depth` tokens are compared.

    They end, by seed, at the first draw that stopped before `depth` tokens, so that the tokens of a
    draw do not decide whether it counts.
    """
    samples = []
    for sample in result.samples:
        whole = sample.finished not in (None, "cancelled")
        if not sample.pieces or (len(sample.pieces) < depth and not whole):
            break
        samples.append(sample)
    return samples


@dataclass(frozen=True)
class Finding:
    """The comparison of one decoder's draws, of all its sets of seeds, with its law.

    Attributes:
        compared: "target": with the target's law; "first step": the beams of the first step, with
            the law of one step of beam sampling; "own": the decoder claims neither law, and only
            its distance from the target's is known
        texts: draws that count
        draws: samples of the law that were compared: these texts, or their beams
        p: an upper bound on the chance that draws of any claimed law of this run ever look so
            unlike it; None if nothing is claimed or known
        unlike: whether the draws prove that their law is another
        distance: total variation from the target's law; None if there is only one cell
        usual: mean distance of as many exact draws; None likewise
        needed: draws that find a total variation of 0.1 in 99 of 100 cases; None if there is only
            one cell
        never: the beginning of a text that the target never writes, "" if none was drawn
        seed: the seed of the draw that wrote `never`
    """

    decoder: str
    compared: Compared
    texts: int
    draws: int
    p: float | None = None
    unlike: bool = False
    distance: float | None = None
    usual: float | None = None
    needed: int | None = None
    never: str = ""
    seed: int | None = None


def findings(run: Run) -> list[Finding]:
    settings = run.settings
    if settings.get("temperature", 1.0) == 0:
        return []
    depth = min(DEPTH, settings.get("max_new_tokens", DEPTH))
    counted_draws = [
        _counted(decoder, results, compared(decoder, settings), run.exact, depth)
        for decoder, results in grouped(run).items()
    ]
    alone = [p_value(counts, chances) for _, counts, chances in counted_draws]
    claimed = [
        None if finding.compared == "own" else p
        for (finding, _, _), p in zip(counted_draws, alone, strict=True)
    ]
    claims = max(1, sum(p is not None for p in claimed))
    return [
        _measured(finding, counts, chances, one, p, claims)
        for (finding, counts, chances), one, p in zip(
            counted_draws, alone, holm(claimed), strict=True
        )
    ]


def compared(decoder: str, settings: dict) -> Compared:
    law = catalog[decoder](**settings.get(decoder, {})).law
    return "own" if law is None or decoder == BASELINE else Law(law).tested


def _counted(
    decoder: str, results: Sequence[Result], kind: Compared, exact: Sequence[Prefix], depth: int
) -> tuple[Finding, list[int], tuple[float, ...]]:
    """What is found without chance, the draws in each cell, and the chances of these cells."""
    samples = [
        (result.seed + sample.prompt, sample)
        for result in results
        for sample in counted(result, depth)
    ]
    texts: list[tuple[Tokens, int, list[str]]] = [
        (
            tuple(piece.id for piece in sample.pieces[:depth]),
            seed,
            [piece.text for piece in sample.pieces],
        )
        for seed, sample in samples
    ]
    if kind == "first step":
        exact = [prefix for prefix in exact if len(prefix.tokens) == 1]
        texts = [((token,), seed, [""]) for seed, sample in samples for token in sample.beams]
    partition = cells({tuple(prefix.tokens): prefix.p for prefix in exact})
    counts = partition.counts(tokens for tokens, _, _ in texts)
    finding = Finding(decoder, kind, len(samples), sum(counts))
    if counts[-1]:
        labels = {tuple(prefix.tokens): prefix.text for prefix in exact}
        tokens, seed, pieces = next(text for text in texts if partition.never(text[0]))
        beginning = partition.never(tokens)
        never = "".join(pieces[: len(beginning)]) or labels[beginning]
        finding = replace(finding, never=never, seed=seed)
    return finding, counts, partition.chances


def _measured(
    finding: Finding,
    counts: list[int],
    chances: tuple[float, ...],
    alone: float | None,
    p: float | None,
    claims: int,
) -> Finding:
    """The finding with what chance has to do with it.

    Args:
        alone: the p value of this decoder by itself
        p: the same corrected for all that claim a law; None if this one does not
        claims: how many claim one
    """
    if alone is None:
        return finding
    possible = sum(chance > 0 for chance in chances)
    return replace(
        finding,
        p=p,
        unlike=(alone if p is None else p) < LEVEL,
        distance=variation(counts, chances),
        usual=by_chance(finding.draws, chances),
        needed=needed(possible, claims) if possible > 1 else None,
    )
