"""Draws of made-up laws with the page's verdict: the rates of both kinds of errors. True laws that
are called unlike, and false ones that are not."""

from collections.abc import Sequence

import numpy as np

from workbench.runs.draws import LEVEL, SOUGHT, holm, needed, p_value

LOOKS = 40  # a press of the button each
STEP = 100  # draws a press
Law = Sequence[float]


def laws(cells: int, count: int, seed: int) -> list[Law]:
    """The even law over this number of cells, and others whose cells have at least one in
    twenty."""
    source, spare = np.random.default_rng(seed), 1 - 0.05 * cells
    others = [0.05 + max(0.0, spare) * source.dirichlet(np.ones(cells)) for _ in range(count - 1)]
    return [np.full(cells, 1 / cells), *(law / law.sum() for law in others)]


def ever_unlike(law: Law, decoders: int, shared: bool, seed: int) -> bool:
    """Whether any of the decoders, whose law this is, is ever called unlike while draws are added;
    with shared seeds all of them draw the same."""
    source = np.random.default_rng(seed)
    drawn = 1 if shared else decoders
    counts = source.multinomial(STEP, law, size=(LOOKS, drawn)).cumsum(axis=0)
    for look in counts.tolist():
        found = [p_value(each, law) for each in look] * (decoders // drawn)
        if any(p is not None and p < LEVEL for p in holm(found)):
            return True
    return False


def directions(law: Law, seed: int) -> list[np.ndarray]:
    """Laws at a total variation of SOUGHT from this one. Halves against halves, which are the
    hardest to tell, the largest cell against all others, a few cells against the others, and at
    random. Mass that a cell does not have is left out."""
    source, p = np.random.default_rng(seed), np.asarray(law)
    cells = len(p)
    parts = [
        np.arange(cells) == p.argmax(),
        np.isin(np.arange(cells), source.permutation(cells)[: max(1, cells // 5)]),
    ]
    for _ in range(4):
        half = np.zeros(cells, bool)
        for cell in source.permutation(cells):
            half[cell] = p[half].sum() + p[cell] <= 0.5 + 1e-9
        parts.append(half)
    weights = [(p * part, p * ~part) for part in parts if 0 < part.sum() < cells]
    for _ in range(4):
        noise = source.normal(size=cells) * p
        noise -= noise.sum() * p
        weights.append((np.maximum(noise, 0), np.maximum(-noise, 0)))
    every = [
        moved(p, to, away) for one, other in weights for to, away in ((one, other), (other, one))
    ]
    return [other for other in every if (other >= 0).all()]


def moved(p: np.ndarray, to: np.ndarray, away: np.ndarray) -> np.ndarray:
    """SOUGHT of the mass moved, in proportion to these weights."""
    return p + SOUGHT * (to / to.sum() - away / away.sum())


def found_share(law: Law, other: Law, decoders: int, times: int, seed: int) -> float:
    """The share of cases in which the needed draws of another law are called unlike. `decoders`
    laws are tested, and all others look true."""
    draws = needed(len(law), decoders)
    counts = np.random.default_rng(seed).multinomial(draws, other, size=times).tolist()
    verdicts = (holm([p_value(each, law), *[1.0] * (decoders - 1)])[0] for each in counts)
    return sum(p < LEVEL for p in verdicts) / times
