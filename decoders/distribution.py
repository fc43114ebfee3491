"""What is sampled: a distribution over tokens or (beam, token) pairs, and how logits become one.

A Distribution is a measure on the ids 0 .. V-1; a distribution if its masses sum to one.
`p[token]` is a float, 0 for tokens without mass; `2 * p` and `p / 2` scale every mass.

It has two forms with one interface. `Small` holds the few tokens that warping leaves, on the
host. `Whole` has one number for every token, in a tensor that is made when a rule needs all of
them: to draw, or to learn the chance of a token, it may need less. Rules do not see the difference.
One uniform number draws the same token from both forms, because both add up masses by rising id.
"""

import math
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate
from operator import neg
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from decoders.devices import device_of
from decoders.errors import InputError, allowed, setting
from decoders.shapes import Logits, Probs, TokenId

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
        return self.cumulative[-1] if self.mass else 0.0

    @property
    def cumulative(self) -> list[float]:
        if self._cumulative is None:
            self._cumulative = list(accumulate(self.mass.values()))
        return self._cumulative

    @property
    def entropy(self) -> float:
        """The entropy in nats."""
        masses = torch.tensor([*self.mass.values()], dtype=torch.float64)
        return torch.special.entr(masses).sum().item()

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


class Whole:
    """A tensor of masses, with the interface of `Small`.

    Args:
        mass: the masses (V,), or what makes them when they are needed
    """

    __slots__ = ("_mass",)

    def __init__(self, mass: Probs | Callable[[], Probs]):
        self._mass = mass

    @property
    def mass(self) -> Probs:
        if not isinstance(self._mass, torch.Tensor):
            self._mass = self._mass()
        return self._mass

    def __getitem__(self, token: TokenId) -> float:
        return self.mass[token].item()

    def __mul__(self, factor: float) -> "Whole":
        return self if factor == 1 else Whole(self.mass * factor)

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
        if device_of(self.mass.device).on_host:
            return draws(self.mass.numpy(), uniforms)
        u = self.mass.new_tensor(uniforms, dtype=torch.float64)
        cumulative = self.mass.cumsum(-1, dtype=torch.float64)
        return torch.searchsorted(cumulative, u * (cumulative[-1] * UNDER_ONE), right=True).tolist()

    def within(self, ids: Iterable[TokenId]) -> Small:
        ids = list(ids)
        masses = self.mass[self.mass.new_tensor(ids, dtype=torch.long)].tolist()
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


def draws(masses: np.ndarray, uniforms: Sequence[float]) -> list[TokenId]:
    """`Distribution.draw` from masses (V,) on the host. Numpy's sums take thrice as long."""
    cumulative = torch.from_numpy(masses).cumsum(-1, dtype=torch.float64).numpy()
    goals = np.array(uniforms) * (cumulative[-1] * UNDER_ONE)
    return cumulative.searchsorted(goals, "right").tolist()  # "right" skips tokens without mass


def point_mass(token: TokenId) -> Small:
    return Small({token: 1.0})


def beside(mass: Probs, other: Probs) -> Probs:
    """Masses on the device of others; those of an n-gram table are on the CPU."""
    return mass if mass.device == other.device else mass.to(other.device)


def minimum(p: Distribution, q: Distribution) -> Distribution:
    """The measure min(p, q); of distributions, its total is the chance to accept a draw from q."""
    if isinstance(p, Whole) and isinstance(q, Whole):
        return Whole(torch.minimum(p.mass, beside(q.mass, p.mass).to(p.mass.dtype)))
    few_p = p if isinstance(p, Small) else p.within(x for x, _ in q.items())
    few_q = (q if isinstance(q, Small) else q.within(few_p.mass)).mass
    return Small({x: min(m, few_q[x]) for x, m in few_p.mass.items() if x in few_q})


def residual(p: Distribution, q: Distribution) -> Distribution:
    """norm(max(0, p - q)): what is left of p after a draw from q was refused.

    If nothing is left, q covers p and only rounding can have caused the refusal: p is returned.

    Source:
        Leviathan et al. 2023 (arXiv 2211.17192), section 2.3.
    """
    rest = above(p, q)
    mass = rest.total
    return rest / mass if mass > 0 else p


def above(p: Distribution, q: Distribution, times: float = 1.0) -> Distribution:
    """The measure max(0, p - times q); once, its total is the chance to refuse a draw from q."""
    if isinstance(p, Whole):
        if isinstance(q, Whole):
            taken = beside(q.mass, p.mass)
        else:
            few, taken = dict(q.items()), torch.zeros_like(p.mass)
            taken[list(few)] = taken.new_tensor(list(few.values()))
        return Whole(torch.sub(p.mass, taken, alpha=times).clamp_(min=0))
    of_q = (q if isinstance(q, Small) else q.within(x for x, _ in p.items())).mass.get
    return Small({x: over for x, m in p.items() if (over := m - times * of_q(x, 0.0)) > 0})


MANY = 80  # tokens, of which torch finds the likeliest in less time than kernels


class Scan:
    """What is read of rows of logits (n, V) on the host: here by numpy and torch, for any type.

    The result for a row depends on this row alone.

    Attributes:
        stable: the most likeliest tokens of which, of equals, the lower id comes first; of more any
            may
        alike: whether `heat` has the sum of `excesses`, to the last bit
    """

    stable: int = 1
    alike: bool = False

    def likeliest(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The logits and ids of the `count` likeliest tokens of each row, falling, (n, count).

        A row with a logit that is not a number has NaN as its first one, at any id.
        """
        if count == 1:
            ids = rows.argmax(-1)[:, None]
            return np.take_along_axis(rows, ids, -1), ids
        values, places = torch.from_numpy(rows).topk(count)
        return values.numpy(), places.numpy()

    def excesses(self, rows: np.ndarray, highest: np.ndarray, temperature: float) -> np.ndarray:
        """The log of the sum of exp((logit - highest) / temperature) of each row, (n,)."""
        # A request with invalid logits fails; the others of its pass continue.
        with np.errstate(invalid="ignore", over="ignore"):
            over = rows - highest[:, None].astype(rows.dtype)
            if temperature != 1:
                over /= max(temperature, np.finfo(over.dtype).tiny)
            return np.log(np.exp(over, out=over).sum(-1))

    def heat(self, row: np.ndarray, temperature: float) -> tuple[np.ndarray, float]:
        """The masses exp((logit - highest) / temperature) of a row (V,), and their sum."""
        over = row.astype(np.float64) - row.max()
        with np.errstate(over="ignore"):
            masses = np.exp(over / max(temperature, np.finfo(row.dtype).tiny))
        return masses, masses.sum()

    def nucleus(
        self, row: np.ndarray, masses: np.ndarray, whole: float, top_p: float, min_p: float
    ) -> None:
        """Make of masses (V,) the distribution that top-p and then min-p leave of them.

        Args:
            row: their logits
            masses, whole: see `heat`
            top_p, min_p: as in a Warping
        """
        stay = masses >= min_p
        if top_p < 1:
            falling = np.sort(masses)[::-1]
            # A token stays while the mass of likelier ones is below top_p.
            last = min(int(falling.cumsum().searchsorted(top_p * whole)), len(row) - 1)
            least = falling[last]
            stay &= masses >= least
            equals = np.flatnonzero(masses == least)
            stay[equals[last + 1 - np.count_nonzero(masses > least) :]] = False
        masses *= stay
        masses /= masses.sum()


PLAIN = Scan()


class Tops(NamedTuple):
    """What is read of rows of logits (n, V).

    Attributes:
        logits, ids: see `Scan.likeliest`, (n, count)
        excesses: see `Scan.excesses`, by temperature, (n,)
        scan: what has read them, if it can read more of these rows
    """

    logits: np.ndarray
    ids: np.ndarray
    excesses: Mapping[float, np.ndarray]
    scan: Scan | None = None


def read_of(rows: Logits, count: int, temperatures: Iterable[Any]) -> torch.Tensor:
    """The logits and ids of Tops and their excesses at these temperatures, side by side."""
    values, ids = rows.topk(count)
    over = rows - values[:, :1]
    sums = [(over / t).logsumexp(-1, keepdim=True) for t in temperatures]
    # Float64 holds every logit and every id.
    return torch.cat([x.double() for x in (values, ids, *sums)], -1)


@dataclass(frozen=True)
class Warping:
    """Temperature first, then top-nσ, top-k, top-p (the token that crosses p is kept) and min-p.

    Each of them sees the tokens that the one before it has left. This is the order of transformers;
    llama.cpp has the same with the temperature last, as with `temperature_last`.

    Attributes:
        temperature: 0 puts all probability on the likeliest token; of equals, on the lowest id
        top_k: number of tokens kept; 0 keeps all
        top_p: mass of tokens kept; 1 keeps all. A temperature or top_p below the least normal
            number of the logits' type counts as that number.
        min_p: the least probability kept, over that of the likeliest token; 0 keeps all
        top_n_sigma: how far below the highest logit one may lie, in standard deviations of the
            row's finite logits (divided by their number); 0 keeps all. The tokens kept are the same
            at any temperature.
        temperature_last: let top-p and min-p see the probabilities at temperature 1

    Raises:
        InputError: for values out of range

    Source:
        Nguyen et al. 2024 (min-p, arXiv 2407.01082); Tang et al. 2024 (top-nσ, arXiv 2411.07641).
    """

    temperature: float = setting(
        1.0, "0 takes the likeliest token, 1 keeps the model's distribution", low=0.0, high=100.0
    )
    top_k: int = setting(0, "keep only the k likeliest tokens; 0 keeps all", low=0)
    top_p: float = setting(
        1.0, "keep the likeliest tokens of this total probability, above 0", low=0.0, high=1.0
    )
    min_p: float = setting(
        0.0,
        "keep tokens at least this fraction as likely as the likeliest; 0 keeps all",
        low=0.0,
        high=1.0,
    )
    top_n_sigma: float = setting(
        0.0,
        "keep logits within this many standard deviations of the highest; 0 keeps all",
        low=0.0,
        high=100.0,
    )
    temperature_last: bool = setting(
        False, "apply temperature after top-p and min-p, as llama.cpp does", choices=(True, False)
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            low, high, choices = (each.metadata[key] for key in ("low", "high", "choices"))
            value = allowed(each.name, getattr(self, each.name), low, high, choices)
            object.__setattr__(self, each.name, value)
        if self.top_p == 0:
            raise InputError("top_p must be above 0, which would keep no token; 1 keeps all.")

    @classmethod
    def of(cls, options: Any) -> Self:
        """The warping among the attributes of some options."""
        return cls(**{each.name: getattr(options, each.name) for each in fields(cls)})

    @property
    def numbers(self) -> tuple[float, ...]:
        """Temperature, top-k, top-p and min-p, as graphs and kernels want them."""
        return self.temperature, self.top_k, self.top_p, self.min_p

    @property
    def usual(self) -> bool:
        """Whether it is a temperature with top-k, top-p and min-p after it, and nothing else."""
        return not (self.top_n_sigma or self.temperature_last)

    @property
    def prior(self) -> float:
        """The temperature of the probabilities that top-p and min-p see."""
        return 1.0 if self.temperature_last else self.temperature

    @property
    def cuts(self) -> bool:
        """Whether it may give a token probability 0 at temperatures above 0."""
        return bool(self.top_k or self.top_p < 1 or self.min_p or self.top_n_sigma)


Heat = tuple[np.ndarray, float]


def warp(logits: Logits, warping: Warping, scan: Scan = PLAIN, heat: Heat | None = None) -> Probs:
    """Probabilities (..., V) from logits (..., V), of the same float type.

    To warp a joint distribution over (beam, token) pairs, flatten its log-likelihoods to one row
    first.

    Args:
        warping: what to do with them
        scan: finds what top-p leaves of rows on the host
        heat: of a row alone, what `scan` says at the temperature that top-p sees; it is overwritten
    """
    if warping.temperature == 0:
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    least, last = torch.finfo(logits.dtype).tiny, warping.temperature_last
    temperature, top_p = max(warping.temperature, least), max(warping.top_p, least)
    if warping.top_n_sigma:
        over = logits - logits.amax(-1, keepdim=True)
        logits = over.masked_fill(over < -warping.top_n_sigma * deviation(logits), -math.inf)
    if warping.top_p < 1 and not warping.top_k and device_of(logits.device).on_host:
        if logits.dim() == 1:
            return torch.from_numpy(nucleus(logits.numpy(), warping, scan, heat))
        rows = logits.reshape(-1, logits.shape[-1]).numpy()
        results = [torch.from_numpy(nucleus(row, warping, scan)) for row in rows]
        return torch.stack(results).view_as(logits)
    # The maximum is subtracted so that a tiny temperature cannot make the largest logit infinite.
    over = logits - logits.amax(-1, keepdim=True)
    if not warping.cuts:
        return (over / temperature).softmax(-1)
    ordered = warping.top_k or warping.top_p < 1
    values, ids = top(over, int(warping.top_k) or over.shape[-1]) if ordered else (over, None)
    probs = (values / temperature).softmax(-1)
    views = values.softmax(-1) if last else probs
    if warping.top_p < 1:
        # The mass of likelier tokens: a token stays while that is below top_p.
        before = views.cumsum(-1) - views
        probs = probs.masked_fill(before >= top_p, 0)
    if warping.min_p:
        probs = probs.masked_fill(views < warping.min_p * views.amax(-1, keepdim=True), 0)
    if warping.top_p < 1 or warping.min_p:
        probs = probs / probs.sum(-1, keepdim=True)
    return probs if ids is None else torch.zeros_like(over).scatter_(-1, ids, probs)


def nucleus(row: np.ndarray, warping: Warping, scan: Scan, heat: Heat | None = None) -> np.ndarray:
    """What top-p and min-p leave of a row of logits (V,) on the host."""
    masses, whole = heat or scan.heat(row, warping.prior)
    scan.nucleus(row, masses, whole, max(warping.top_p, np.finfo(row.dtype).tiny), warping.min_p)
    if warping.temperature != warping.prior:
        stay = masses > 0
        masses, _ = scan.heat(row, warping.temperature)
        masses *= stay
        masses /= masses.sum(dtype=np.float64)
    return masses.astype(row.dtype, copy=False)


def deviation(logits: Logits) -> torch.Tensor:
    """The standard deviation (..., 1) of the finite logits (..., V): -inf rules a token out."""
    finite = logits.isfinite()
    count = finite.sum(-1, keepdim=True)
    mean = logits.where(finite, 0).sum(-1, keepdim=True) / count
    return ((logits - mean).where(finite, 0).square().sum(-1, keepdim=True) / count).sqrt()


def small(
    ids: Sequence[int],
    logits: Sequence[float],
    size: int,
    excess: Callable[[float], float],
    warping: Warping,
) -> Small | None:
    """The warped distribution, or None if the likeliest ids do not hold all of it.

    Args:
        ids: the likeliest ids by falling logit; of equals the lower id first
        logits: their logits
        size: number of all ids
        excess: from a temperature t to the log of the sum, over all ids, of
            exp((logit - highest) / t)
        warping: see `warp`; top-nσ needs all logits
    """
    if not ids or warping.temperature == 0:
        return point_mass(ids[0]) if ids else None
    k = min(int(warping.top_k), size) or size
    known = k < size or (warping.top_p == 1 and not warping.min_p)
    if warping.top_n_sigma or (len(ids) < k and known):
        return None
    highest, temperature = logits[0], max(warping.temperature, sys.float_info.min)
    prior, goal = 1.0 if warping.temperature_last else temperature, 0.0
    if warping.top_p < 1 and len(ids) < k:
        goal = warping.top_p * math.exp(excess(prior))
        if len(ids) < goal and not warping.min_p:  # none is heavier than the first, which weighs 1
            return None
    weights = views = [math.exp((x - highest) / temperature) for x in logits[:k]]
    if prior != temperature:
        views = [math.exp((x - highest) / prior) for x in logits[:k]]
    count = len(weights) + 1
    if warping.top_p < 1:
        # A token stays while the mass of likelier ones is below top_p.
        goal = goal or warping.top_p * sum(views)
        count = bisect_left(list(accumulate(views)), goal) + 1
    if warping.min_p and views[-1] < warping.min_p:
        count = min(count, bisect_right(views, -warping.min_p, key=neg))
    if count > len(weights) < k:
        return None
    del weights[count:]
    mass = sum(weights)
    return Small({x: w / mass for x, w in sorted(zip(ids, weights, strict=False)) if w > 0})


def top(scaled: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest values of each row in falling order, and their ids.

    Of equals the lower id comes first, which torch.topk does not promise.
    """
    size = scaled.shape[-1]
    if k >= size:
        return scaled.sort(dim=-1, descending=True, stable=True)
    values, ids = scaled.topk(k + 1)
    if (values[..., k - 1] > values[..., k]).all():
        ids = ids[..., :k].sort(-1).values
    # Ties at the edge, as of equal beams: keep the first of the values that equal the k-th.
    else:
        edge = values[..., k - 1 : k]
        above, equal = scaled > edge, scaled == edge
        mask = above | (equal & (equal.cumsum(-1) <= k - above.sum(-1, keepdim=True)))
        ids = mask.nonzero()[:, -1].view(*scaled.shape[:-1], k)
    values, order = scaled.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(-1, order)
