"""Says by enumeration whether a bare function verifies drafts without loss."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from decoders.drafts import Sampler, with_replacement
from decoders.errors import allowed, refuse
from decoders.testing.bare import Shape, Trial, hidden, is_chain
from decoders.testing.situations import Path, variation
from decoders.testing.tables import Row, Table, likely, most_accepted, tables

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
        found: its probability as it comes out
        expected: the target's
        distance: the total variation between both laws, of texts one token longer than the draft
    """

    table: Table
    shape: Shape
    text: Path
    found: float
    expected: float
    distance: float

    def __str__(self) -> str:
        depth = len(self.shape)
        gap = _decimals(abs(self.found - self.expected))
        draft = f"a draft of {depth}" if set(self.shape) == {1} else f"a tree {self.shape}"
        return "\n".join(
            [
                f"{draft}, {self.table.V} tokens",
                f"target p = {_numbers(self.table.p, self.table.V, depth + 1)}",
                f"draft  q = {_numbers(self.table.q, self.table.V, depth)}",
                f"a text begins with {_ids(self.text)} with probability {self.found:.{gap}f}; "
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
            f"target's law, to {EXACT:g}.\n{accepts}"
        )


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
        verify: the function
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
    chain = is_chain(verify)
    bounded = chain and sample is with_replacement
    count, accepted, most = 0, list[float](), list[float]()
    for V in sizes:
        allowed("a size of the vocabulary", V, 1)
    work = list[tuple[Shape, int, int]]()
    for shape in shapes or (CHAINS if chain else TREES):
        refuse((chain and set(shape) != {1}, f"A function of chains verifies no tree {shape}."))
        nodes = sum(itertools.accumulate(shape, int.__mul__))
        work += [(shape, nodes, V) for V in sizes if shapes or V**nodes <= USUAL]
    refuse((not work, "There is no table to try; give small sizes, such as (2, 3)."))
    for shape, nodes, V in work:
        for table in tables(V, nodes):
            trial = Trial(verify, table, shape, sample, chain)
            law, ways = trial.law(limit)
            accepted.append(sum(chance * (len(text) - 1) for text, chance in law.items()))
            most.append(float(sum(most_accepted(table, len(shape)))))
            count += ways
            if wrong := compared(table, shape, law):
                if any(variation(law, trial.law(limit)[0]) > EXACT for _ in range(AGAIN)):
                    raise hidden()
                return Proof(wrong, len(most), count, accepted[-1], most[-1] if bounded else None)
    return Proof(None, len(most), count, fmean(accepted), fmean(most) if bounded else None)


def compared(table: Table, shape: Shape, law: dict[Path, float]) -> Counterexample | None:
    """The difference between what comes out and the target's law; None if there is none."""
    start: dict[Path, float] = {(): 1.0}
    found, expected = (likely(table, len(shape) + 1, known) for known in (law, start))
    distance = variation(found, expected)
    if distance <= EXACT:
        return None
    for length in range(1, len(shape) + 2):
        gaps = {
            text: tuple(
                math.fsum(mass for whole, mass in each.items() if whole[:length] == text)
                for each in (found, expected)
            )
            for text in dict.fromkeys(whole[:length] for whole in found)
        }
        text, (out, wanted) = max(gaps.items(), key=lambda gap: abs(gap[1][0] - gap[1][1]))
        if abs(out - wanted) > EXACT / 2 or length > len(shape):
            break
    return Counterexample(table, shape, text, out, wanted, distance)


def _decimals(size: float) -> int:
    """The decimals that show a difference of this size, six or more."""
    return max(6, 1 - math.floor(math.log10(size))) if size else 6


def _ids(path: Path) -> str:
    return " ".join(map(str, path))


def _numbers(model: Callable[[Path], Row], V: int, depth: int) -> str:
    """The rows after all texts shorter than `depth`, or the one row that holds everywhere."""
    rows = {
        path: ", ".join(map(str, model(path)))
        for length in range(depth)
        for path in itertools.product(range(V), repeat=length)
    }
    if len(set(rows.values())) == 1:
        return f"{rows[()]} everywhere"
    return "; ".join(f"{row} after {_ids(path)}" if path else row for path, row in rows.items())
