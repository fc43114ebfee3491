"""The draws of a run: each decoder's texts as one tree with counts, and what they say of the law that it claims."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from decoders import catalog
from workbench.runs.cells import DEPTH, Cells, Tokens, cells, holm, of_exact_sampler, p_value, variation
from workbench.runs.record import Result, Run, Sample
from workbench.runs.trace import Piece
from workbench.studies.schemes import BASELINE

Compared = Literal["target", "first step", "own"]


@dataclass
class Node:
    """A token of the tree: how many texts begin with the tokens down to it, how many end with it, and the tokens that follow, in the
    order they were first drawn."""

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


def drawn(result: Result) -> list[Sample]:
    """The draws of a result that wrote anything; those of a run that was stopped may be unfinished."""
    return [sample for sample in result.samples if sample.pieces]


def counted(result: Result, depth: int) -> list[Sample]:
    """The draws whose first `depth` tokens count: by seed as far as the first that did not get there, so that what was drawn does not
    decide whether it counts."""
    found = []
    for sample in result.samples:
        whole = sample.finished not in (None, "cancelled")
        if not sample.pieces or (len(sample.pieces) < depth and not whole):
            break
        found.append(sample)
    return found


@dataclass(frozen=True)
class Finding:
    """What the draws of one decoder say.

    compared   "target": with the target's law; "first step": the beams of the first step, with the law of one step of beam sampling;
               "own": it claims no law of these, and only its distance is known
    texts      draws that count;   draws  what was drawn from the law: these texts, or their beams
    p          that an exact sampler is as far off, after Holm's correction; None if that is not known or nothing claims it
    distance   total variation from the target's law;   usual, most  that of as many exact draws: its mean, and what 95 of 100 stay below;
               None if there is but one cell
    """

    decoder: str
    compared: Compared
    texts: int
    draws: int
    p: float | None = None
    distance: float | None = None
    usual: float | None = None
    most: float | None = None


def findings(run: Run) -> list[Finding]:
    """One for each result of a run of draws; [] at temperature 0, where nothing is drawn."""
    settings = run.settings
    if settings.get("temperature", 1.0) == 0:
        return []
    law = {tuple(prefix.tokens): prefix.p for prefix in run.exact}
    depth = min(DEPTH, settings.get("max_new_tokens", DEPTH))
    found = [_counts(result, compared(result.decoder, settings), law, depth) for result in run.results]
    tested = [None if kind == "own" else p_value(counts, cell.chances) for kind, _, counts, cell in found]
    return [_finding(result, each, p) for result, each, p in zip(run.results, found, holm(tested), strict=True)]


def compared(decoder: str, settings: dict) -> Compared:
    """What a decoder's draws are compared with, with the settings of a run."""
    law = catalog[decoder](**settings.get(decoder, {})).law
    if law == "target" and decoder != BASELINE:
        return "target"
    return "first step" if law is not None and law.startswith("beam sampling") else "own"


def _counts(
    result: Result, kind: Compared, law: dict[Tokens, float], depth: int
) -> tuple[Compared, int, list[int], Cells]:
    """What is compared, the texts that count, and how many draws lie in each cell."""
    samples = counted(result, depth)
    texts = [tuple(piece.id for piece in sample.pieces[:depth]) for sample in samples]
    if kind == "first step":
        texts = [(token,) for sample in samples for token in sample.beams]
        law = {prefix: p for prefix, p in law.items() if len(prefix) == 1}
    found = cells(law, len(texts))
    return kind, len(samples), found.counts(texts), found


def _finding(result: Result, found: tuple[Compared, int, list[int], Cells], p: float | None) -> Finding:
    kind, texts, counts, cell = found
    draws = sum(counts)
    if len(cell.chances) < 2 or not draws:
        return Finding(result.decoder, kind, texts, draws)
    usual, most = of_exact_sampler(draws, cell.chances)
    return Finding(result.decoder, kind, texts, draws, p, variation(counts, cell.chances), usual, most)
