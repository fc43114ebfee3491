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
from decoders.engine.kernels.tiles import between, lowest

COLUMNS = 256  # numbers that are compared at once
BLOCK = 64  # numbers that are passed over at once
FEW = 64  # numbers that are sorted; more are parted first
SAMPLE = 128  # numbers that tell where to part them
ASIDE = -10, -3, 3, 10  # places in the sample, from the one where the edge seems to be
STRETCH = 1024  # numbers that are added up before others
GAPS = (701, 301, 132, 57, 23, 10, 4, 1)  # Ciura 2001


@njit(error_model="numpy")
def nucleus(row, masses, whole, top_p, min_p):
    """Leave of the masses (V,) of a row, whose largest one is 1, what top-p and then min-p do.

    Args:
        row, masses, whole: see `edge`
        top_p, min_p: as in a Warping
    """
    least, over, left = F(-np.inf), 0, whole
    if top_p < 1.0:
        least, over, left = edge(row, masses, top_p * whole, whole)
    last = len(row)
    while over:
        last -= 1
        if row[last] == least:
            masses[last] = 0
            over -= 1
    if min_p:
        left = heavy(row, masses, least, min_p)
    share(row, masses, least, min_p, 1.0 / left)


@njit(fastmath=SUMS, error_model="numpy")
def heavy(row, masses, least, lightest):
    """The sum of the masses that are not below `lightest`, of numbers from `least` on."""
    left = 0.0
    for i in range(len(row)):
        left += masses[i] if (row[i] >= least) & (masses[i] >= lightest) else 0.0
    return left


@njit(error_model="numpy")
def share(row, masses, least, lightest, factor):
    """Scale these masses, and leave none of the others."""
    for i in range(len(row)):
        stays = (row[i] >= least) & (masses[i] >= lightest)
        masses[i] = masses[i] * factor if stays else 0.0


@njit(error_model="numpy")
def edge(row, masses, goal, whole):
    """Where a row is cut, if its largest numbers stay until their masses reach a goal.

    Of equal numbers, which have equal masses, the first ones stay. Each step adds up the row from
    four bounds on, between which a sample has the edge, and so leaves some 6% of what the step
    before left. The time is therefore proportional to the length of the row, whether it is
    peaked, flat or full of equal numbers.

    Args:
        row: numbers (V,)
        masses: theirs, which fall as they do, (V,)
        goal: below `whole`, but for rounding
        whole: the sum of all masses

    Returns:
        the least number that stays, how many equals of it do not, and the mass that stays

    Source:
        Floyd and Rivest 1975 (Algorithm 489, SELECT), with masses instead of counts.
    """
    # Those from `high` on have the mass `before`; `values` are the others that may stay.
    values, weights, high, before, rest = row, masses, F(np.inf), 0.0, whole
    while len(values) > FEW:
        bounds = limits(values, weights, rest - (goal - before))
        above = sums(values, weights, bounds[0], bounds[1], bounds[2], bounds[3])
        low, more, most = F(-np.inf), 0.0, rest
        for i in range(len(bounds)):
            if before + above[i] >= goal:
                low, most = bounds[i], above[i]
                break
            high, more = bounds[i], above[i]
        before, rest = before + more, most - more
        values, weights = part(values, weights, low, high)
        if high == np.nextafter(low, F(np.inf)):
            equals = len(values)
            stay = min(max(math.ceil((goal - before) / rest * equals), 1), equals)
            return low, equals - stay, before + rest * stay / equals
    ids = np.arange(len(values))
    sort(ids, len(ids), values)
    least, over = high, 0
    for i in ids:
        if before >= goal:
            over += values[i] == least
        else:
            least, before = values[i], before + weights[i]
    return least, over, before


@njit(error_model="numpy")
def limits(values, weights, left):
    """Four falling numbers about the one from which on this mass is probably left.

    At least one of the values is between two of them, or two are next to each other.
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
    out = np.empty(len(ASIDE), F)
    for i in range(len(ASIDE)):
        out[i] = some[falling[min(max(middle + ASIDE[i], 0), last)]]
    if out[1] == out[2]:
        out[1] = np.nextafter(out[2], F(np.inf))
        out[0] = max(out[0], out[1])
    return out


@njit(fastmath=SUMS, error_model="numpy")
def sums(values, weights, first, second, third, fourth):
    """The masses from each of four bounds on, whose stretches are added up in their own type."""
    zero, a, b, c, d = weights[0] - weights[0], 0.0, 0.0, 0.0, 0.0
    for start in range(0, len(values), STRETCH):
        numbers, masses = values[start : start + STRETCH], weights[start : start + STRETCH]
        e = f = g = h = zero
        for i in range(len(numbers)):
            x, mass = numbers[i], masses[i]
            e += mass if x >= first else zero
            f += mass if x >= second else zero
            g += mass if x >= third else zero
            h += mass if x >= fourth else zero
        a, b, c, d = a + e, b + f, c + g, d + h
    return a, b, c, d


@njit(error_model="numpy")
def part(values, weights, low, high):
    """The numbers from one on and below another, and their masses."""
    size, count = len(values), 0
    fewer, lighter = np.empty(size, F), np.empty(size, weights.dtype)
    begin, end = np.int64(values.ctypes.data), size - size % 64
    for start in range(0, end, 64):
        bits = between(begin + 4 * start, low, high)
        while bits:
            place = start + lowest(bits)
            fewer[count], lighter[count] = values[place], weights[place]
            count += 1
            bits &= bits - 1
    for place in range(end, size):
        if low <= values[place] < high:
            fewer[count], lighter[count] = values[place], weights[place]
            count += 1
    return fewer[:count], lighter[:count]


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


@njit(error_model="numpy")
def spread(rows: Any, highest: Any, temperature: Any, out: Any) -> None:
    """Write the log of the sum of exp((x - highest) / temperature) of each row (n, V)."""
    masses = np.empty(STRETCH, F)
    for r in range(len(rows)):
        whole: Any = 0.0
        for start in range(0, rows.shape[1], STRETCH):
            whole += weight(rows[r, start : start + STRETCH], highest[r], temperature, masses)
        out[r] = math.log(whole)


@njit(fastmath=SUMS, error_model="numpy")
def weight(part: Any, highest: Any, temperature: Any, masses: Any) -> Any:
    """Write exp((x - highest) / temperature) of some numbers; return their sum in float64."""
    top, coldness, whole = F(highest), F(1.0 / temperature), 0.0
    for i in range(len(part)):
        masses[i] = exponential((part[i] - top) * coldness)
    for i in range(len(part)):
        whole += masses[i]
    return whole


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
def heat(row: Any, temperature: float, out: Any) -> Any:
    """Write exp((x - highest) / temperature) of a row (V,); return their sum, that of `spread`."""
    highest, whole = largest(row), 0.0
    for start in range(0, len(row), STRETCH):
        end = start + STRETCH
        whole += weight(row[start:end], highest, temperature, out[start:end])
    return whole


class CompiledScan(Scan):
    """By compiled kernels, for float32 numbers that lie one after another.

    Args:
        find, spread, heat, nucleus: see above, compiled
    """

    stable, alike = MANY, True

    def __init__(self, find: Callable, spread: Callable, heat: Callable, nucleus: Callable):
        self._find, self._spread, self._heat, self._nucleus = find, spread, heat, nucleus

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

    def heat(self, row: np.ndarray, temperature: float) -> tuple[np.ndarray, float]:
        masses = np.empty_like(row)
        return masses, self._heat(row, max(temperature, LEAST), masses)

    def nucleus(
        self, row: np.ndarray, masses: np.ndarray, whole: float, top_p: float, min_p: float
    ) -> None:
        self._nucleus(row, masses, whole, top_p, min_p)
