"""Says by enumeration whether a bare function verifies drafts without loss.

It is run in every way it can go on tables: targets and drafts of a few tokens with fractions for
probabilities, the smallest ones first.
"""

import inspect
import itertools
import math
import operator
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import fmean
from typing import Any

import numpy as np
import torch

from decoders.distribution import Distribution, Small, Whole
from decoders.errors import InputError, allowed, first_line, quoted, refuse
from decoders.methods.sources import Sampler, with_replacement, without_replacement
from decoders.request import RandomSource
from decoders.shapes import Probs, TokenId
from decoders.testing.oracle import HIDDEN, Branches, outcomes
from decoders.testing.situations import Path, variation

Row = tuple[Fraction, ...]
FIXED = 16  # most drafts of a shape with fixed rows
PARTS = range(2, 12)  # denominators of drawn rows
SCARCE = Fraction(1, 1000)


@dataclass(frozen=True)
class Table:
    """The probabilities of the next token after every text.

    Attributes:
        V: vocabulary size
        p: the target's row after a text
        q: the draft's row after a text
    """

    V: int
    p: Callable[[Path], Row]
    q: Callable[[Path], Row]


@dataclass(frozen=True)
class Everywhere:
    row: Row

    def __call__(self, path: Path) -> Row:
        return self.row


@dataclass(frozen=True)
class Scatter:
    """Rows drawn at random in equal parts, different after every text.

    Attributes:
        V: vocabulary size
        parts: number of parts
        seed: another one gives other rows
        scarce: the probability of one token, drawn too, beside which the parts are of the rest
    """

    V: int
    parts: int
    seed: int
    scarce: Fraction | None = None

    @lru_cache(maxsize=4096)  # noqa: B019 - of a value
    def __call__(self, path: Path) -> Row:
        draw = np.random.default_rng([self.seed, self.parts, len(path), *path])
        V = self.V - (self.scarce is not None)
        counts = draw.multinomial(self.parts, [1 / V] * V)
        row = [Fraction(int(count), self.parts) for count in counts]
        if self.scarce is not None:
            row = [(1 - self.scarce) * x for x in row]
            row.insert(int(draw.integers(self.V)), self.scarce)
        return tuple(row)


def tables(V: int, nodes: int) -> Iterator[Table]:
    """The tables to try for drafts of this many tokens, by rising denominators.

    First all pairs of simple rows that hold after every text, then drawn ones, whose rows depend on
    the text and have zeros in some places, and last those with a token of 1/1000 in p, q or both.
    """
    if V**nodes <= FIXED:
        rows = {
            tuple(Fraction(count, parts) for count in counts)
            for parts in range(1, 7 - V)
            for counts in itertools.product(range(parts + 1), repeat=V)
            if sum(counts) == parts
        }
        for p, q in sorted(itertools.product(sorted(rows), repeat=2), key=_size):
            yield Table(V, Everywhere(p), Everywhere(q))
    for parts in PARTS:
        yield Table(V, Scatter(V, parts, 0), Scatter(V, parts, 1))
    for of_p, of_q in ((None, SCARCE), (SCARCE, None), (SCARCE, SCARCE)) if V > 1 else ():
        for parts in PARTS[:3]:
            yield Table(V, Scatter(V, parts, 0, of_p), Scatter(V, parts, 1, of_q))


def _size(pair: tuple[Row, ...]) -> tuple[int, int]:
    """The largest denominator, then the number of zeros."""
    parts = pair[0] + pair[1]
    return max(x.denominator for x in parts), parts.count(Fraction(0))


def likely(table: Table, depth: int, known: dict[Path, float]) -> dict[Path, float]:
    """The law of texts of some length that begin as `known` says and go on as the target does.

    Args:
        depth: length of the texts
        known: from each shorter text to the chance that a decoder's round ends with it; {(): 1.0}
            gives the target's own law
    """
    law: dict[Path, float] = {(): known.get((), 0.0)}
    for _ in range(depth):
        law = {
            (*path, token): mass * float(p) + known.get((*path, token), 0.0)
            for path, mass in law.items()
            for token, p in enumerate(table.p(path))
        }
    return law


def most_accepted(table: Table, length: int) -> list[Fraction]:
    """The largest chance with which a lossless rule can accept the i-th token of a chain, i >= 1.

    The sum is the most draft tokens that it can accept in the mean. Block verification reaches it.

    Source:
        Sun et al. 2024, block verification (arXiv 2403.10444), which is optimal: its weights.
    """
    most, one = list[Fraction](), Fraction(1)
    drafts: list[tuple[Path, Fraction, Fraction]] = [((), one, one)]  # text, chance, weight
    for _ in range(length):
        drafts = [
            ((*path, token), chance * q, min(one, weight * p / q))
            for path, chance, weight in drafts
            for token, (p, q) in enumerate(zip(table.p(path), table.q(path), strict=True))
            if q
        ]
        most.append(sum((chance * weight for _, chance, weight in drafts), Fraction(0)))
    return most


Shape = tuple[int, ...]  # children of every draw, layer by layer; (1, 1) is a chain of two
CHAIN, TREE = ("p", "q", "tokens", "source"), ("p", "q", "tokens", "parents", "source")


def likeliest(source: RandomSource, q: Distribution, count: int) -> list[TokenId]:
    """Children that are chosen, not drawn: the tokens of largest q."""
    return sorted((x for x, _ in q.items()), key=lambda x: -q[x])[:count]


# How the children of a node can come from q.
CHILDREN: dict[str, Sampler] = {
    "with-replacement": with_replacement,
    "without-replacement": without_replacement,
    "likeliest": likeliest,
}


class Chance:
    """All the randomness of a function under proof."""

    def __init__(self, source: Branches):
        self._source = source

    def accept(self, probability: Any) -> bool:
        """Whether an event of this probability happens; it is cut to the range from 0 to 1."""
        chance = float(probability)
        if math.isnan(chance):
            raise ValueError("source.accept was given a probability that is not a number")
        return self._source.accept(max(0.0, chance))[0]

    def draw(self, weights: Any) -> TokenId:
        """An id; the weights are its chances, and need not sum to one."""
        masses = [float(weight) for weight in weights]
        total = sum(masses)
        if not (0 < total < math.inf and min(masses) >= 0):
            raise ValueError(f"source.draw was given {masses}, which is no distribution")
        return self._source.draw(Small({x: m / total for x, m in enumerate(masses) if m}))[0]


def is_chain(verify: Callable) -> bool:
    """Whether the function takes chains; InputError if it takes neither chains nor trees."""
    try:
        names = [
            name
            for name, each in inspect.signature(verify).parameters.items()
            if each.default is each.empty
            and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        names = []
    if len(names) not in (len(CHAIN), len(TREE)):
        raise InputError(
            f"A function to prove is called as verify({', '.join(CHAIN)}) for chains or "
            f"verify({', '.join(TREE)}) for trees, not as {quoted(', '.join(names))}."
        )
    return len(names) == len(CHAIN)


def generators() -> tuple:
    """The states of the generators that every module of a process shares."""
    mersenne = np.random.get_state(legacy=False)["state"]
    shared = torch.get_rng_state().numpy().tobytes(), random.getstate()
    return (*shared, mersenne["key"].tobytes(), mersenne["pos"])


@dataclass(frozen=True)
class Setup:
    """A function on one table.

    Attributes:
        shape: the shape of its drafts
        sample: how the children of one node are drawn
        chain: whether it takes chains
    """

    verify: Callable[..., tuple[int, int]]
    table: Table
    shape: Shape
    sample: Sampler
    chain: bool

    def law(self, limit: int) -> tuple[dict[Path, float], int]:
        """From what a round adds to a text to its probability, and the number of ways.

        Raises:
            InputError: if the function fails, returns something else, or draws elsewhere
            TooManyWays: for more than `limit` ways
        """
        law: dict[Path, float] = defaultdict(float)
        ways = 0
        for chance, text in outcomes(self._round, limit=limit):
            law[text] += chance
            ways += 1
        return law, ways

    def _round(self, source: Branches) -> Path:
        tokens, parents, paths = self._draft(source)
        p, q = (_rows(row, paths) for row in (self.table.p, self.table.q))
        given = [p, q[: len(tokens)], tokens[:]]
        if not self.chain:
            given[1:] = [q, tokens[:], parents]
        before = generators()
        try:
            row, token = map(operator.index, self.verify(*given, Chance(source)))
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            # Any failure of a caller's function: the numbers show it again.
            raise InputError(
                f"The function failed with p = {p.tolist()}, q = {q.tolist()}, tokens = "
                f"{tokens}: {type(error).__name__}: {first_line(error)}"
            ) from error
        # What is drawn from them rarely might not show in the law.
        refuse((generators() != before, HIDDEN))
        if not (0 <= row <= len(tokens) and 0 <= token < self.table.V):
            raise InputError(
                f"The function returned {row}, {token}; it must return how many of "
                f"{len(tokens)} tokens it keeps (of a tree: the last row that it keeps) and "
                f"an id below {self.table.V}."
            )
        return (*paths[row], token)

    def _draft(self, source: Branches) -> tuple[list[TokenId], list[int], list[Path]]:
        """Its tokens, layer by layer; the row of each one's parent; and the text up to each row.

        Row 0 is the root, and row i + 1 belongs to token i.
        """
        tokens, parents, layer = list[TokenId](), list[int](), [0]
        paths: list[Path] = [()]
        for children in self.shape:
            grown = len(paths)
            for row in layer:
                q = Whole(_rows(self.table.q, [paths[row]])[0])
                for token in self.sample(source, q, children):
                    tokens.append(token)
                    parents.append(row)
                    paths.append((*paths[row], token))
            layer = list(range(grown, len(paths)))
        return tokens, parents, paths


def _rows(model: Callable[[Path], Row], paths: Sequence[Path]) -> Probs:
    return torch.tensor([[float(x) for x in model(path)] for path in paths], dtype=torch.float64)


CHAINS: tuple[Shape, ...] = ((1,), (1, 1), (1, 1, 1))
TREES: tuple[Shape, ...] = ((2,), (3,), (1, 2), (2, 1), (2, 2))
USUAL = 100  # most drafts of these shapes
EXACT = 1e-9
AGAIN = 20  # times that a lossy table is enumerated again: what draws elsewhere is not lossy


@dataclass(frozen=True)
class Counterexample:
    """A target and a draft for which the law that comes out is not the target's.

    Attributes:
        table: their probabilities
        shape: of the draft
        text: the beginning of a text whose probability is wrong
        actual: its probability as it comes out
        expected: the target's
        distance: the total variation between both laws, of texts one token longer than the draft
    """

    table: Table
    shape: Shape
    text: Path
    actual: float
    expected: float
    distance: float

    def __str__(self) -> str:
        depth, beginning = len(self.shape), " ".join(map(str, self.text))
        gap = _decimals(abs(self.actual - self.expected))
        draft = f"a draft of {depth}" if set(self.shape) == {1} else f"a tree {self.shape}"
        return "\n".join(
            [
                f"{draft}, {self.table.V} tokens",
                f"target p = {_numbers(self.table.p, self.table.V, depth + 1)}",
                f"draft  q = {_numbers(self.table.q, self.table.V, depth)}",
                f"a text begins with {beginning} with probability {self.actual:.{gap}f}; "
                f"the target's is {self.expected:.{gap}f}",
                f"total variation {self.distance:.{_decimals(self.distance)}f}",
            ]
        )


@dataclass(frozen=True)
class Proof:
    """What enumeration says of a function; as a text, the verdict in words and numbers.

    Attributes:
        counterexample: the smallest: shortest draft, then smallest vocabulary, then smallest
            denominators; None if the function is lossless on every table
        tables: tables enumerated
        ways: ways that the function can go on them
        accepted: mean of the draft tokens that it accepts: on the counterexample, or over all
            tables
        most: mean of the most that a lossless function can accept of chains drawn from q, likewise;
            None for other drafts
    """

    counterexample: Counterexample | None
    tables: int
    ways: int
    accepted: float
    most: float | None

    @property
    def lossless(self) -> bool:
        return self.counterexample is None

    def __str__(self) -> str:
        most = "" if self.most is None else f"; a lossless rule can accept {self.most:.4f} at most"
        accepts = f"accepted draft tokens {self.accepted:.4f}{most}"
        if self.counterexample:
            return f"Not lossless. The smallest counterexample:\n{self.counterexample}\n{accepts}"
        return (
            f"Lossless on all {self.tables} tables: in {self.ways:,} ways the text has the "
            f"target's distribution, to {EXACT:g}.\n{accepts}"
        )


def _listed(sizes: Any, shapes: Any, sample: Any, limit: Any) -> tuple[list[int], list[Shape]]:
    """The sizes and the shapes that `prove` is given; raises InputError for what it cannot use."""
    sizes, shapes = ([*each] if isinstance(each, Iterable) else [each] for each in (sizes, shapes))
    for V in sizes:
        allowed("a size of the vocabulary", V, 1)
    for shape in shapes:
        layers = shape if isinstance(shape, tuple | list) and shape else [None]
        for children in layers:
            allowed("each layer of a shape, as in shapes=[(1, 1)],", children, 1)
    allowed("limit", limit, 1)
    refuse(
        (
            not callable(sample),
            'sample must be a function, such as decoders.testing.CHILDREN["likeliest"], not '
            f"{quoted(sample)}.",
        )
    )
    return sizes, shapes


def prove(
    verify: Callable[..., tuple[int, int]],
    *,
    shapes: Sequence[Shape] = (),
    sizes: Sequence[int] = (2, 3),
    sample: Sampler = with_replacement,
    limit: int = 20_000,
) -> Proof:
    """Say by enumeration whether a function that verifies drafts is lossless.

    Chains are verified by `verify(p, q, tokens, source)`. Row i of q is the distribution that
    `tokens[i]` was drawn from, row i of p the target's at that place; p has one row more. The
    function returns how many tokens it keeps, and the id of the token after them.

    Trees are verified by `verify(p, q, tokens, parents, source)`. Row 0 of p and q is at the root,
    row i + 1 after `tokens[i]`, which is a child of row `parents[i]`. Tokens come layer by layer,
    children in the order drawn; equal draws are separate. The function returns the last row that it
    keeps, 0 for the root, and the id of the token after it.

    Rows are float64 tensors. All chance comes from `source`: `source.accept(probability)` is True
    or False, `source.draw(weights)` an id.

    A text begins with what the function keeps and its token, and goes on as the target does. On
    many small tables of probabilities, the smallest first, its law is compared with the target's.

    Args:
        shapes: shapes of drafts: for each layer the children of every draw; (1, 1) is a chain of
            two. By default chains of 1 to 3 or small trees
        sizes: sizes of the vocabulary
        sample: draws the children of one node, given a source, q and their number; by default
            i.i.d. from q
        limit: most ways of one table

    Raises:
        InputError: if the function has another signature, fails, returns something else, draws
            elsewhere than from `source`, or takes chains only and a shape is a tree; for a size
            below 1, and for none that is small enough for the usual shapes
        TooManyWays: if a table has more ways than `limit`

    Example:
        ```python
        from decoders.testing import prove

        def verify(p, q, tokens, source):
            for i, token in enumerate(tokens):
                if not source.accept(p[i, token] / q[i, token]):
                    return i, source.draw((p[i] - q[i]).clamp(min=0))
            return len(tokens), source.draw(p[-1])

        print(prove(verify))
        ```
    """
    sizes, shapes = _listed(sizes, shapes, sample, limit)
    chain = is_chain(verify)
    bounded = chain and sample is with_replacement
    count, accepted, most = 0, list[float](), list[float]()
    work = list[tuple[Shape, int, int]]()
    for shape in shapes or (CHAINS if chain else TREES):
        refuse((chain and {*shape} != {1}, f"A function of chains verifies no tree {shape}."))
        nodes = sum(itertools.accumulate(shape, int.__mul__))
        work += [(shape, nodes, V) for V in sizes if shapes or V**nodes <= USUAL]
    refuse((not work, "There is no table to try; give small sizes, such as (2, 3)."))
    for shape, nodes, V in work:
        for table in tables(V, nodes):
            trial = Setup(verify, table, shape, sample, chain)
            law, ways = trial.law(limit)
            accepted.append(sum(chance * (len(text) - 1) for text, chance in law.items()))
            most.append(float(sum(most_accepted(table, len(shape)))))
            count += ways
            if wrong := compared(table, shape, law):
                again = any(variation(law, trial.law(limit)[0]) > EXACT for _ in range(AGAIN))
                refuse((again, HIDDEN))
                return Proof(wrong, len(most), count, accepted[-1], most[-1] if bounded else None)
    return Proof(None, len(most), count, fmean(accepted), fmean(most) if bounded else None)


def compared(table: Table, shape: Shape, law: dict[Path, float]) -> Counterexample | None:
    """The difference between what comes out and the target's law; None if there is none."""
    start: dict[Path, float] = {(): 1.0}
    result, expected = (likely(table, len(shape) + 1, known) for known in (law, start))
    distance = variation(result, expected)
    if distance <= EXACT:
        return None
    for length in range(1, len(shape) + 2):
        gaps = {
            text: tuple(
                math.fsum(mass for whole, mass in each.items() if whole[:length] == text)
                for each in (result, expected)
            )
            for text in dict.fromkeys(whole[:length] for whole in result)
        }
        text, (out, wanted) = max(gaps.items(), key=lambda gap: abs(gap[1][0] - gap[1][1]))
        if abs(out - wanted) > EXACT / 2 or length > len(shape):
            break
    return Counterexample(table, shape, text, out, wanted, distance)


def _decimals(size: float) -> int:
    """The decimals that show a difference of this size, six or more."""
    return max(6, 1 - math.floor(math.log10(size))) if size else 6


def _numbers(model: Callable[[Path], Row], V: int, depth: int) -> str:
    """The rows after all texts shorter than `depth`, or the one row that holds everywhere."""
    rows = {
        path: ", ".join(map(str, model(path)))
        for length in range(depth)
        for path in itertools.product(range(V), repeat=length)
    }
    if len(set(rows.values())) == 1:
        return f"{rows[()]} everywhere"
    return "; ".join(
        f"{row} after {' '.join(map(str, path))}" if path else row for path, row in rows.items()
    )
