"""A target and a draft over a few tokens, and servers that verify drafts of it, also wrongly. Each
row of a table is the law of the next token after one token. Texts begin after four of them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from workbench.engines.canary import SOUGHT, Draws, labels, shares

V, STARTS, TOKENS, DRAFT = 40, 4, 6, 3  # DRAFT: tokens of the server's drafts

Table = np.ndarray  # (V, V), rows sum to one


def _laws() -> tuple[Table, Table]:
    source = np.random.default_rng(0)
    logits = 1.8 * source.normal(size=(V, V))
    both = np.exp([logits, logits + 0.9 * source.normal(size=(V, V))])
    p, q = both / both.sum(-1, keepdims=True)
    return p, q


P, Q = _laws()
CELLS = labels(torch.tensor(P), torch.tensor(Q))
SHARES = shares(torch.tensor(P), CELLS, True).numpy()
MIN = np.minimum(P, Q)
ALPHA = MIN.sum(-1, keepdims=True)  # the chance that a draft token is kept


def variation(a: Table, b: Table) -> np.ndarray:
    return np.abs(a - b).sum(-1) / 2


@dataclass(frozen=True)
class Server:
    """A server that draws texts.

    Attributes:
        later: the law of the tokens after the first, which comes from the pass over the prompt
        bonus: the law of the token after a draft that was kept as a whole; by default `later`
    """

    later: Table
    bonus: Table | None = None

    def draws(self, texts: int, source: np.random.Generator) -> tuple[np.ndarray, ...]:
        """The token before each drawn one, and the drawn ones, (TOKENS, texts) each. The third is
        whether the server's draft had been kept as a whole there."""
        before = np.arange(texts) % STARTS
        kept = np.ones(texts, dtype=bool)
        found = []
        first, later = P.cumsum(-1), self.later.cumsum(-1)
        bonus = later if self.bonus is None else self.bonus.cumsum(-1)
        for position in range(TOKENS):
            beyond = kept & (position == DRAFT + 1)
            rows = np.where(beyond[:, None], bonus[before], (later if position else first)[before])
            token = (rows < source.random((texts, 1))).sum(-1).clip(max=V - 1)
            found.append((before, token, beyond))
            if position:
                chance = np.minimum(1, Q[before, token] / P[before, token])
                kept &= source.random(texts) < chance
            before = token
        return tuple(np.array(each) for each in zip(*found, strict=True))

    def watched(self, texts: int, source: np.random.Generator) -> Draws:
        """Its draws at the places that they visited, as the canary sees them."""
        before, token, _ = self.draws(texts, source)
        at, drawn = before.ravel(), token.ravel()
        position, none = np.repeat(np.arange(TOKENS), texts), np.empty((len(at), 0, 1))
        return Draws(position, CELLS.numpy()[at, drawn], SHARES[at], none, none[..., 0])


RIGHT = Server(P)


def _visits(place: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """How often a right server's texts visit each token's row, where `place` says."""
    before, _, beyond = RIGHT.draws(20_000, np.random.default_rng(1))
    position = np.arange(TOKENS)[:, None] + 0 * before
    chosen = place(position, beyond)
    counts = np.bincount(before[chosen], minlength=V)
    return counts / (20_000 if chosen.sum() <= 20_000 else chosen.sum())


LATER = _visits(lambda position, beyond: position > 0)
BEYOND = _visits(lambda position, beyond: beyond)  # sums to the share of texts that come there


def mixed(wrong: Table, visits: np.ndarray = LATER) -> Table:
    """The law mixed with a wrong one until it is off by SOUGHT at these places."""
    off = float((visits * variation(P, wrong)).sum())
    assert off >= SOUGHT, f"no mixture is off by {SOUGHT}; this rule is off by {off:.3f}"
    return P + SOUGHT / off * (wrong - P)


def between(family: Callable[[float], Table], right: float, wrong: float) -> Table:
    """The member of a family that is off by SOUGHT, between two of its parameters."""
    for _ in range(40):
        middle = (right + wrong) / 2
        off = float((LATER * variation(P, family(middle))).sum())
        right, wrong = (middle, wrong) if off < SOUGHT else (right, middle)
    return family(wrong)


def tempered(temperature: float) -> Table:
    powers = P ** (1 / temperature)
    return powers / powers.sum(-1, keepdims=True)


def nucleus(top_p: float) -> Table:
    order = np.argsort(-P, axis=-1)
    ranked = np.take_along_axis(P, order, -1)
    kept = np.zeros_like(P)
    np.put_along_axis(kept, order, ranked * (ranked.cumsum(-1) - ranked < top_p), -1)
    return kept / kept.sum(-1, keepdims=True)


def fallen_through() -> Table:
    """Draws from the residual as if it summed to one: the last token gets what is missing."""
    law = MIN + (1 - ALPHA) * np.maximum(P - Q, 0)
    law[:, -1] += 1 - law.sum(-1)
    return law


WRONG = {
    "accepts every draft token": Server(mixed(Q)),
    "after a refusal draws from p, not from the residual": Server(mixed(MIN + (1 - ALPHA) * P)),
    "residual not renormalised": Server(mixed(fallen_through())),
    "temperature too high": Server(between(tempered, 1.0, 3.0)),
    "temperature too low": Server(between(tempered, 1.0, 0.3)),
    "top-p left on": Server(between(nucleus, 1.0, 0.3)),
    "token after a whole draft drawn from the draft": Server(P, mixed(Q, BEYOND)),
}
