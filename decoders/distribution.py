"""What is sampled: a distribution over tokens or (beam, token) pairs.

A Distribution is a measure on the ids 0 .. V-1; a distribution if its masses sum to one.
`p[token]` is a float, 0 for tokens without mass; `2 * p` and `p / 2` scale every mass.

It has two forms with one interface. `Small` holds the few tokens that warping leaves, on the
host. `Whole` holds one number for every token, in a tensor on the model's device. Rules do not see
the difference. One uniform number draws the same token from both forms, because both add up masses
by rising id.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch

from decoders.shapes import Probs, TokenId

# Keeps a uniform number times the total below the total in spite of rounding.
UNDER_ONE = 1 - 2**-52


@dataclass(eq=False, slots=True)
class Small:
    """The ids that have mass, rising, each with its mass in float64.

    Attributes:
        mass: from id to mass, by rising id
    """

    rounding = 2.0**-52  # the relative error of one operation on its masses

    mass: dict[TokenId, float]
    _cumulative: list[float] | None = field(default=None, init=False, repr=False)

    def __getitem__(self, token: TokenId) -> float:
        return self.mass.get(token, 0.0)

    def __mul__(self, factor: float) -> "Small":
        return Small({x: factor * m for x, m in self.mass.items()})

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> "Small":
        return Small({x: m / divisor for x, m in self.mass.items()})

    @property
    def total(self) -> float:
        """The sum of all masses."""
        return self.cumulative[-1] if self.mass else 0.0

    @property
    def cumulative(self) -> list[float]:
        if self._cumulative is None:
            self._cumulative = list(accumulate(self.mass.values()))
        return self._cumulative

    @property
    def entropy(self) -> float:
        """The entropy in nats."""
        return (
            torch.special.entr(torch.tensor(list(self.mass.values()), dtype=torch.float64))
            .sum()
            .item()
        )

    def items(self) -> Iterable[tuple[TokenId, float]]:
        """The ids that have mass, rising, each with its mass."""
        return self.mass.items()

    def draw(self, uniforms: Sequence[float]) -> list[TokenId]:
        """The id where the cumulative mass first exceeds u times the total; 0 <= u < 1 for each."""
        ids, below = list(self.mass), self.total * UNDER_ONE
        return [ids[bisect_right(self.cumulative, u * below)] for u in uniforms]

    def within(self, ids: Iterable[TokenId]) -> "Small":
        """This measure on some ids alone, which are given rising."""
        return Small({x: self.mass[x] for x in ids if x in self.mass})

    def without(self, token: TokenId) -> "Small":
        """The distribution without `token`, renormalised; empty if no other token has mass."""
        rest = Small({x: m for x, m in self.mass.items() if x != token})
        return rest / rest.total if rest.mass else rest

    def regrouped(self, rows: Mapping[int, int], size: int) -> "Small":
        """Some rows of a distribution over (row, token) pairs, renormalised.

        Args:
            rows: from each row to keep to its new row
            size: V; the id of a pair is row * V + token
        """
        moved = ((divmod(x, size), m) for x, m in self.mass.items())
        rest = Small(
            dict(sorted((rows[row] * size + token, m) for (row, token), m in moved if row in rows))
        )
        return rest / rest.total if rest.mass else rest


@dataclass(eq=False, slots=True)
class Whole:
    """A tensor of masses, with the interface of `Small`.

    Attributes:
        mass: the masses (V,)
    """

    mass: Probs

    def __getitem__(self, token: TokenId) -> float:
        return self.mass[token].item()

    def __mul__(self, factor: float) -> "Whole":
        return Whole(self.mass * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> "Whole":
        return Whole(self.mass / divisor)

    @property
    def total(self) -> float:
        return self.mass.sum().item()

    @property
    def entropy(self) -> float:
        return torch.special.entr(self.mass).sum().item()

    @property
    def rounding(self) -> float:
        return torch.finfo(self.mass.dtype).eps

    def items(self) -> Iterable[tuple[TokenId, float]]:
        return [(x, m) for x, m in enumerate(self.mass.tolist()) if m > 0]

    def draw(self, uniforms: Sequence[float]) -> list[TokenId]:
        u = torch.tensor(uniforms, dtype=torch.float64, device=self.mass.device)
        cumulative = self.mass.cumsum(-1, dtype=torch.float64)
        # `right` skips tokens without mass.
        return torch.searchsorted(cumulative, u * (cumulative[-1] * UNDER_ONE), right=True).tolist()

    def within(self, ids: Iterable[TokenId]) -> Small:
        ids = list(ids)
        masses = self.mass[torch.tensor(ids, dtype=torch.long, device=self.mass.device)].tolist()
        return Small({x: m for x, m in zip(ids, masses, strict=True) if m > 0})

    def without(self, token: TokenId) -> "Whole | Small":
        rest = self.mass.clone()
        rest[token] = 0
        mass = rest.sum()
        return Whole(rest / mass) if mass > 0 else Small({})

    def regrouped(self, rows: Mapping[int, int], size: int) -> "Whole":
        order = sorted(rows, key=rows.__getitem__)
        rest = self.mass.view(-1, size)[order].flatten()
        return Whole(rest / rest.sum())


Distribution = Small | Whole


def point_mass(token: TokenId) -> Small:
    return Small({token: 1.0})


def minimum(p: Distribution, q: Distribution) -> Distribution:
    """The measure min(p, q); of distributions, its total is the chance to accept a draw from q."""
    if isinstance(p, Whole) and isinstance(q, Whole):
        return Whole(torch.minimum(p.mass, q.mass.to(p.mass.device, p.mass.dtype)))
    few_p = p if isinstance(p, Small) else p.within(x for x, _ in q.items())
    few_q = (q if isinstance(q, Small) else q.within(few_p.mass)).mass
    return Small({x: min(m, few_q[x]) for x, m in few_p.mass.items() if x in few_q})


def residual(p: Distribution, q: Distribution) -> Distribution:
    """norm(max(0, p - q)): what is left of p after a draw from q was refused.

    If nothing is left, q covers p and only rounding can have caused the refusal: p is returned.

    Source:
        Leviathan et al. 2023 (arXiv 2211.17192), section 2.3.
    """
    if isinstance(p, Whole):
        if isinstance(q, Whole):
            # The masses of an n-gram table are on the CPU.
            taken = q.mass.to(p.mass.device)
        else:
            few, taken = dict(q.items()), torch.zeros_like(p.mass)
            taken[list(few)] = torch.tensor(
                list(few.values()), dtype=taken.dtype, device=taken.device
            )
        rest = (p.mass - taken).clamp_(min=0)
        whole = rest.sum()
        return Whole(rest / whole) if whole > 0 else p
    of_q = (q if isinstance(q, Small) else q.within(x for x, _ in p.items())).mass.get
    left = {x: over for x, m in p.items() if (over := m - of_q(x, 0.0)) > 0}
    mass = sum(left.values())
    return Small({x: m / mass for x, m in left.items()}) if mass > 0 else p
