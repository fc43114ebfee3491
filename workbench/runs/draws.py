"""The draws of a run: each decoder's texts as a tree with counts, compared with its law."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from decoders import catalog
from decoders.settings import Law
from workbench.runs.record import Result, Run, Sample
from workbench.runs.trace import Piece, Prefix
from workbench.runs.verdicts import (
    DEPTH,
    LEVEL,
    MOST,
    Tokens,
    cells,
    holm,
    needed,
    of_exact_samplers,
    p_value,
    variation,
)
from workbench.studies.schemes import BASELINE

# It samples from the target by definition, so its draws show what the seeds do to every decoder.
CONTROL = "multinomial"
Compared = Literal["target", "first step", "own"]


@dataclass
class Node:
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
    children: dict[int, "Node"] = field(default_factory=dict)

    @property
    def following(self) -> list["Node"]:
        """The children, the most frequent first."""
        return sorted(self.children.values(), key=lambda child: -child.count)


def grown(texts: Iterable[Sequence[Piece]]) -> Node:
    """The texts as one tree."""
    root = Node()
    for text in texts:
        root.count += 1
        node = root
        for piece in text:
            node = node.children.setdefault(piece.id, Node(piece.id, piece.text))
            node.count += 1
        node.ended += 1
    return root


def grouped(run: Run) -> dict[str, list[Result]]:
    """The results of each decoder: one for each set of seeds."""
    groups: dict[str, list[Result]] = {}
    for result in run.results:
        groups.setdefault(result.decoder, []).append(result)
    return groups


def drawn(results: Iterable[Result]) -> list[Sample]:
    """The samples that have tokens; those of a run that was stopped may be unfinished."""
    return [sample for result in results for sample in result.samples if sample.pieces]


def beginnings(run: Run) -> set[Tokens]:
    """The first tokens of all draws; of decoders that draw beams, those of their first step."""
    found: set[Tokens] = set()
    for result in run.results:
        for sample in result.samples:
            if compared(result.decoder, run.settings) == "first step":
                found |= {(token,) for token in sample.beams}
            elif sample.pieces:
                found.add(tuple(piece.id for piece in sample.pieces[:DEPTH]))
    return found


def seeds(results: Iterable[Result]) -> list[range]:
    """The seeds that were drawn, as ranges without gaps."""
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
        distance: total variation from the target's law; None if there is only one cell
        usual: mean distance of as many exact draws; None likewise
        most: the distance that 95 of 100 exact samplers stay below; None likewise
        nearer: share of exact samplers that are nearer; None likewise
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
    distance: float | None = None
    usual: float | None = None
    most: float | None = None
    nearer: float | None = None
    needed: int | None = None
    never: str = ""
    seed: int | None = None

    @property
    def unlike(self) -> bool:
        """Whether the draws refute the claim."""
        return self.p is not None and self.p < LEVEL


def findings(run: Run) -> list[Finding]:
    """One finding for each decoder; [] at temperature 0, where nothing is random."""
    settings = run.settings
    if settings.get("temperature", 1.0) == 0:
        return []
    depth = min(DEPTH, settings.get("max_new_tokens", DEPTH))
    found = [
        _counted(decoder, results, compared(decoder, settings), run.exact, depth)
        for decoder, results in grouped(run).items()
    ]
    tested = [
        None if told.compared == "own" else p_value(counts, chances)
        for told, counts, chances in found
    ]
    claims = max(1, sum(p is not None for p in tested))
    return [
        _measured(replace(told, p=p), counts, chances, claims)
        for (told, counts, chances), p in zip(found, holm(tested), strict=True)
    ]


def compared(decoder: str, settings: dict) -> Compared:
    """The law that a decoder's draws are compared with, under the settings of a run."""
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
    found = cells({tuple(prefix.tokens): prefix.p for prefix in exact})
    counts = found.counts(tokens for tokens, _, _ in texts)
    told = Finding(decoder, kind, len(samples), sum(counts))
    if counts[-1]:
        labels = {tuple(prefix.tokens): prefix.text for prefix in exact}
        tokens, seed, pieces = next(text for text in texts if found.never(text[0]))
        beginning = found.never(tokens)
        never = "".join(pieces[: len(beginning)]) or labels[beginning]
        told = replace(told, never=never, seed=seed)
    return told, counts, found.chances


def _measured(told: Finding, counts: list[int], chances: tuple[float, ...], claims: int) -> Finding:
    possible = sum(chance > 0 for chance in chances)
    if not told.draws or (possible < 2 and not told.never):
        return told
    distance, exact = variation(counts, chances), of_exact_samplers(told.draws, chances)
    return replace(
        told,
        distance=distance,
        usual=float(exact.mean()),
        most=float(np.quantile(exact, MOST)),
        # Equal distances may be rounded differently.
        nearer=float((exact < distance - 1e-9).mean()),
        needed=needed(possible, claims) if possible > 1 else None,
    )
