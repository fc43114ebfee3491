"""What stays of a row of logits, the token drawn from it, and what a scan notes of rows.

It is `decoders.distribution` once more, `warp` and `draw`, for kernels: masses in float64, added up
by rising id.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from decoders.distribution import MANY, PLAIN, Scan
from decoders.engine.kernels.operators import SUMS, F, exponential

COLUMNS = 256  # numbers that are compared at once
BLOCK = 64  # numbers that are passed over at once
FEW = 64  # numbers that are sorted; more are parted first
SAMPLE, ASIDE = 64, 6  # numbers that tell where to part them, and how many of these they may err
GAPS = (701, 301, 132, 57, 23, 10, 4, 1)  # Ciura 2001


@njit(error_model="numpy")
def nucleus(row, masses, whole, top_p, min_p):
    """Leave of the masses (V,) of a row, whose largest one is 1, what top-p and then min-p do.

    Args:
        row, masses, whole: see `edge`
        top_p, min_p: as in a Warping
    """
    least, stay = F(-np.inf), 0
    if top_p < 1.0:
        least, stay = edge(row, masses, top_p * whole, whole)
    left = trim(row, masses, least, stay, min_p)
    for i in range(len(masses)):
        masses[i] /= left


@njit(fastmath=SUMS, error_model="numpy")
def trim(row, masses, least, stay, lightest):
    """Leave the masses of what `edge` says, if they are not below `lightest`; return their sum."""
    left, equals = 0.0, 0
    for i in range(len(row)):
        x, mass = row[i], masses[i]
        mass = mass if (x >= least) & (mass >= lightest) else 0
        masses[i] = mass
        left += mass
        equals += x == least
    for i in range(len(row) - 1, -1, -1):
        if equals <= stay:
            break
        if row[i] == least:
            left -= masses[i]
            masses[i] = 0
            equals -= 1
    return left


@njit(error_model="numpy")
def edge(row, masses, goal, whole):
    """Where a row is cut, if its largest numbers stay until their masses reach a goal.

    Of equal numbers, which have equal masses, the first ones stay. Each step looks only
    at what the step before left, usually a fifth of it. The time is therefore proportional to the
    length of the row, whether it is peaked, flat or full of equal numbers.

    Args:
        row: numbers (V,)
        masses: theirs, which fall as they do, (V,)
        goal: below `whole`, but for rounding
        whole: the sum of all masses

    Returns:
        the least number that stays, and how many equals of it do

    Source:
        Floyd and Rivest 1975 (Algorithm 489, SELECT), with masses instead of counts.
    """
    # Those with less than this have less than `whole - goal` together, so none of them stays.
    values, weights = heavier(row, masses, (whole - goal) / len(row))
    before, rest = 0.0, whole if len(values) == len(row) else weights.sum()
    while len(values) > FEW:
        high, low = bounds(values, weights, rest - (goal - before))
        above, down, more, many = sums(values, weights, high, low)
        if before + above >= goal:
            low, high, size, rest = np.nextafter(high, F(np.inf)), F(np.inf), more, above
        elif before + down < goal:
            low, high, size = F(-np.inf), np.nextafter(low, F(-np.inf)), len(values) - many
            before, rest = before + down, rest - down
        elif high == low:
            stay = (goal - before - above) * (many - more) / (down - above)
            return low, min(max(math.ceil(stay), 1), many - more)
        else:
            size, before, rest = many - more, before + above, down - above
        values, weights = part(values, weights, high, low, size)
    ids = np.arange(len(values))
    sort(ids, len(ids), values)
    least, stay = F(-np.inf), 0
    for i in ids:
        if before >= goal:
            break
        stay = stay + 1 if values[i] == least else 1
        least, before = values[i], before + weights[i]
    return least, stay


@njit(error_model="numpy")
def heavier(row, masses, least):
    """The numbers of a row with at least this mass, and their masses; or all, if most have it."""
    size = 0
    for i in range(len(masses)):
        size += masses[i] >= least
    if size > len(row) // 2:
        return row, masses
    values, weights, count = np.empty(size + 1, F), np.empty(size + 1, masses.dtype), 0
    for i in range(len(row)):
        values[count], weights[count] = row[i], masses[i]
        count += masses[i] >= least
    return values[:size], weights[:size]


@njit(error_model="numpy")
def bounds(values, weights, left):
    """Two of the numbers, above and below the one from which on this mass is probably left.

    They are equal, or at least one number is not between them.
    """
    size, some, theirs = len(values), np.empty(SAMPLE, F), np.empty(SAMPLE)
    step, each = np.int64(0.6180339887 * size), size / SAMPLE  # nothing follows the golden section
    for i in range(SAMPLE):
        place = i * step % size
        some[i], theirs[i] = values[place], weights[place]
    falling, last = np.arange(SAMPLE), SAMPLE - 1
    sort(falling, SAMPLE, some)
    # From below: a sample may miss the few that are as heavy as all others.
    middle = last
    while middle > 0 and left > each * theirs[falling[middle]]:
        left -= each * theirs[falling[middle]]
        middle -= 1
    high, low = some[falling[max(middle - ASIDE, 0)]], some[falling[min(middle + ASIDE, last)]]
    if high == some[falling[0]] and low == some[falling[last]]:
        high = low = some[falling[middle]]
    return high, low


@njit(fastmath=SUMS, error_model="numpy")
def sums(values, weights, high, low):
    """The masses above one bound and from another one on, and how many each are."""
    above, down, more, many = 0.0, 0.0, 0, 0
    for i in range(len(values)):
        x, weight = values[i], weights[i]
        above += weight if x > high else 0.0
        down += weight if x >= low else 0.0
        more += x > high
        many += x >= low
    return above, down, more, many


@njit(error_model="numpy")
def part(values, weights, high, low, size):
    """The `size` numbers that are not outside of two bounds, and their masses."""
    fewer, lighter, count = np.empty(size + 1, F), np.empty(size + 1, weights.dtype), 0
    for i in range(len(values)):
        x = values[i]
        fewer[count], lighter[count] = x, weights[i]
        count = min(count + ((x >= low) & (x <= high)), size)
    return fewer[:size], lighter[:size]


@njit(error_model="numpy")
def likeliest(row, count):
    """The ids of the largest numbers of a row, falling; of equals the lower id first."""
    size = len(row)
    count = min(count, size)
    if count == 0:
        return np.zeros(0, np.int64)
    best, count_so_far = np.zeros(count + max(count, FEW), np.int64), 0
    least = floor(row, count)
    for start in range(0, size, BLOCK):
        end = min(start + BLOCK, size)
        block, many = row[start:end], np.int32(0)
        for i in range(len(block)):
            many += np.int32(block[i] >= least)
        if not many:
            continue
        for i in range(start, end):
            if row[i] >= least:
                best[count_so_far] = i
                count_so_far += 1
                if count_so_far == len(best):
                    sort(best, count_so_far, row)
                    # An equal of the last one has a higher id, now that more follow.
                    count_so_far, least = count, np.nextafter(row[best[count - 1]], F(np.inf))
    sort(best, count_so_far, row)
    return best[:count]  # any will do for a row without numbers


@njit(error_model="numpy")
def floor(row, count):
    """A number that `count` of a row reach at least, but for those that are no numbers."""
    if count == 1:
        return largest(row)
    if len(row) < 2 * COLUMNS or count > COLUMNS:
        return F(-np.inf)
    best = np.full(count, -np.inf, F)
    for x in tops(row):
        place = count - 1
        if not x > best[place]:
            continue
        while place > 0 and x > best[place - 1]:
            best[place] = best[place - 1]
            place -= 1
        best[place] = x
    return best[count - 1]


@njit(error_model="numpy")
def largest(row):
    """The largest number of a row."""
    highest = tops(row)
    best = highest[0]
    for x in highest:
        best = x if x > best else best
    return best


@njit(error_model="numpy")
def tops(row):
    """The largest number of each column, if the row is lines of COLUMNS numbers."""
    highest = row[:COLUMNS].copy()
    for start in range(COLUMNS, len(row), COLUMNS):
        line = row[start : start + COLUMNS]
        for column in range(len(line)):
            x = line[column]
            highest[column] = x if x > highest[column] else highest[column]
    return highest


@njit(error_model="numpy")
def sort(ids, count, row):
    """Sort the first `count` ids by the numbers of a row, falling; of equals the lower id first.

    Source:
        Shell 1959.
    """
    for gap in GAPS:
        for i in range(gap, count):
            place, own = i, ids[i]
            x = row[own]
            while place >= gap:
                other = ids[place - gap]
                if row[other] > x or (row[other] == x and other < own):
                    break
                ids[place] = other
                place -= gap
            ids[place] = own


UNDER_ONE = 1 - 2**-52  # as in `decoders.distribution`


@njit(error_model="numpy")
def weigh(row, warping, masses):
    """Write a row's warped distribution.

    Args:
        row: the logits (V,)
        warping: temperature, where 0 leaves the likeliest token, top-k, top-p and min-p, as in a
            Warping
        masses: the distribution (V,)
    """
    temperature, top_k, top_p, min_p = warping[0], np.int64(warping[1]), warping[2], warping[3]
    if temperature == 0.0 or top_k:
        ids = likeliest(row, top_k if temperature else 1)
        few = np.ones(len(ids))
        for j in range(1, len(ids)):
            few[j] = mass(row[ids[j]], row[ids[0]], temperature)
        size = cut(few, top_p, min_p)
        whole = few[:size].sum()
        masses[:] = 0.0
        for j in range(size):
            masses[ids[j]] = few[j] / whole
        return
    highest, whole = largest(row), 0.0
    for i in range(len(row)):
        masses[i] = mass(row[i], highest, temperature)
        whole += masses[i]
    nucleus(row, masses, whole, top_p, min_p)


@njit(error_model="numpy")
def mass(x, highest, temperature):
    """The mass of a logit, where that of the highest one is 1."""
    return math.exp((np.float64(x) - np.float64(highest)) / temperature)


@njit(error_model="numpy")
def draw(masses, number):
    """The token that a uniform number, 0 <= number < 1, draws from masses (V,)."""
    left, last = number * masses.sum() * UNDER_ONE, 0
    for i in range(len(masses)):
        if masses[i] > 0.0:
            last = i
            left -= masses[i]
            if left < 0.0:
                break
    return last


@njit(error_model="numpy")
def cut(masses, top_p, min_p):
    """How many of the falling masses top-p and then min-p keep."""
    size, before, most = 0, 0.0, top_p * masses.sum()
    for mass in masses:
        if before >= most or mass < min_p * masses[0]:
            break
        before += mass
        size += 1
    return size


LEAST = np.finfo(np.float32).tiny
STRETCH = 1024  # numbers


@njit(error_model="numpy")
def find(rows: Any, values: Any, ids: Any) -> None:
    """Write the largest numbers of each row (n, V) and their ids, falling, (n, count).

    Of equals the lower id comes first. A row in which something is not a number begins with NaN.
    """
    for r in range(len(rows)):
        row, strange = rows[r], False
        for i in range(len(row)):
            strange |= row[i] != row[i]
        best = likeliest(row, ids.shape[1])
        for j in range(len(best)):
            ids[r, j], values[r, j] = best[j], row[best[j]]
        if strange:
            values[r, 0] = np.nan


@njit(fastmath=SUMS, error_model="numpy")
def spread(rows: Any, highest: Any, temperature: Any, out: Any) -> None:
    """Write the log of the sum of exp((x - highest) / temperature) of each row (n, V).

    Stretches are added up in float32, which is quicker, and they together in float64.
    """
    coldness = F(1.0 / temperature)
    for r in range(len(rows)):
        top = F(highest[r])
        total: Any = 0.0
        for start in range(0, rows.shape[1], STRETCH):
            part, some = rows[r, start : start + STRETCH], F(0.0)
            for i in range(len(part)):
                some += exponential((part[i] - top) * coldness)
            total += some
        out[r] = math.log(total)


@njit(error_model="numpy")
def note(rows: Any, tops: Any, begin: int) -> None:
    """Write what is read of rows (n, V), to the rows of `found` from one on.

    Args:
        rows: the rows
        tops: values, ids, see `find`; and at temperature 1, `out` of `spread`
        begin: where they go
    """
    values, ids, out = tops
    end = begin + len(rows)
    find(rows, values[begin:end], ids[begin:end])
    spread(rows, values[begin:end, 0], 1.0, out[begin:end])


@njit(error_model="numpy")
def leave(row: Any, temperature: float, prior: float, top_p: float, min_p: float, out: Any) -> None:
    """Write what top-p and min-p leave of a row (V,), see `decoders.distribution.Scan.nucleus`."""
    highest = largest(row)
    heat(row, highest, prior, out)
    nucleus(row, out, total(out), top_p, min_p)
    if prior != temperature:
        stay = out > 0
        heat(row, highest, temperature, out)
        for i in range(len(row)):
            out[i] = out[i] if stay[i] else F(0.0)
        left = total(out)
        for i in range(len(row)):
            out[i] /= left


@njit(error_model="numpy")
def heat(row: Any, highest: Any, temperature: float, out: Any) -> None:
    """Write exp((x - highest) / temperature) of a row (V,)."""
    for i in range(len(row)):
        out[i] = exponential((row[i] - F(highest)) / F(temperature))


@njit(fastmath=SUMS, error_model="numpy")
def total(numbers: Any) -> Any:
    """Their sum."""
    whole = 0.0
    for x in numbers:
        whole += x
    return whole


class CompiledScan(Scan):
    """By compiled kernels, for float32 numbers that lie one after another.

    Args:
        find, spread, leave: see above, compiled
    """

    stable = MANY

    def __init__(self, find: Callable, spread: Callable, leave: Callable):
        self._find, self._spread, self._leave = find, spread, leave

    def likeliest(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        if count > MANY:
            return PLAIN.likeliest(rows, count)
        values = np.empty((len(rows), count), rows.dtype)
        ids = np.empty((len(rows), count), np.int64)
        self._find(rows, values, ids)
        return values, ids

    def excesses(self, rows: np.ndarray, highest: np.ndarray, temperature: float) -> np.ndarray:
        out = np.empty(len(rows))
        self._spread(rows, highest, max(temperature, LEAST), out)
        return out

    def nucleus(
        self, row: np.ndarray, temperature: float, prior: float, top_p: float, min_p: float
    ) -> np.ndarray:
        out = np.empty_like(row)
        self._leave(row, max(temperature, LEAST), max(prior, LEAST), top_p, min_p, out)
        return out
