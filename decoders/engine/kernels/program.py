"""The program that a pass is, the passes of a chain after it, and what Python calls (compiled).

A program is instructions over one array of rows, which one function carries out. It is compiled
once for all models, because what differs between them is data: an instruction is a line of numbers.
"""

from typing import Any

import numpy as np
from numba import carray, njit, types

from decoders.engine.kernels import operators
from decoders.engine.kernels.codes import PLACES, Code
from decoders.engine.kernels.parts import attend, help_others, product
from decoders.engine.kernels.select import draw, find, leave, note, spread, weigh
from decoders.engine.kernels.tiles import pointer_to_integers

embed, norm, angles, rotate = operators.embed, operators.norm, operators.angles, operators.rotate
gated, add, select, write = operators.gated, operators.add, operators.select, operators.write

EMBED, NORM, ANGLES, ROTATE, ATTEND, PRODUCT, GATED, ADD, SELECT, _ = map(int, Code)


@njit
def carry_out(
    lines, reals, work, answers, ids, positions, wanted, n, n_wanted, caches, packs, team
):
    room = max(n, n_wanted)
    places = np.empty(PLACES, np.int64)
    for step in range(len(lines)):
        line = lines[step]
        for i in range(PLACES):
            place = line[1 + i]
            places[i] = work + 4 * room * place if place >= 0 else answers[-1 - place]
        x, y, z, out = places
        code, a, b, c, d, e, f = line[0], line[5], line[6], line[7], line[8], line[9], line[10]
        real, other = reals[step]
        if code == PRODUCT:
            product(x, n_wanted if e else n, a, b, c, out, d, np.float32(real), team)
        elif code == NORM:
            norm(x, n * c, a, b, real, out)
        elif code == ROTATE:
            rotate(x, n, a, b, y, z, out)
        elif code == ATTEND:
            cache, pack = caches[a], packs[caches[a, 2]]
            write(y, n, pack[0], b // c * d, cache[0])
            write(z, n, pack[0], b // c * e, cache[1])
            attend(
                x, b, c, d, e, cache[0], cache[1], pack[1], pack[2], pack[3], pack[4], real,
                other, f, out, team,
            )  # fmt: skip
        elif code == GATED:
            gated(x, y, n * a, out)
        elif code == ADD:
            add(x, y, n * a, out)
        elif code == EMBED:
            embed(ids, n, a, b, out)
        elif code == ANGLES:
            angles(positions, n, a, b, real, other, out, z)
        elif code == SELECT:
            select(x, wanted, n_wanted, a, out)


@njit
def first(packing, requests, positions, rows, segments):
    """Write positions, rows and segments of a pass of the tokens after each request's last one."""
    lines = carray(pointer_to_integers(segments), (requests, 7))
    tokens = lines[requests - 1, 1]
    places = carray(pointer_to_integers(positions), (tokens,))
    last_rows = carray(pointer_to_integers(rows), (tokens,))
    for r in range(requests):
        line, last = lines[r], lines[r, 1] - 1
        packing[r], packing[requests + r] = places[last] + 1, last_rows[last] + 1
        segment = packing[2 * requests + 7 * r : 2 * requests + 7 * r + 7]
        segment[0], segment[1], segment[2] = r, r + 1, line[2]
        segment[3], segment[4], segment[5], segment[6] = line[3] + line[1] - line[0], -1, -1, 0


@njit
def passes_and_draws(
    lines, reals, work, ids, positions, wanted, n, n_wanted, logits, tops, tokens, caches, packs,
    warpings, numbers, ends, team,
):  # fmt: skip
    """Make a pass and, if chains are drawn, a pass of one token a request after each draw.

    Args:
        lines, reals, work, ids, positions, wanted, n, n_wanted, caches: those of `run`
        logits: receives those of the pass, then those before each further token, (rows, V)
        tops: what is read of these rows, see `note`
        tokens: receives the tokens of the chains, (steps, requests); if there are steps, one token
            of each request wants logits, its last one
        packs: as in `run`; if there are steps, one line without masks
        warpings: see `weigh`, (requests, 4)
        numbers: the uniform numbers that draw, (steps, requests)
        ends: tokens that end a text; the chains end where all texts have ended
        team: that of `decoders.engine.kernels.parts.share`

    Returns:
        the number of tokens of each chain; the last one is not fed
    """
    steps, requests = tokens.shape
    answers = np.full(1, np.int64(logits.ctypes.data))
    carry_out(lines, reals, work, answers, ids, positions, wanted, n, n_wanted, caches, packs, team)
    note(logits[:n_wanted], tops, 0)
    if steps == 0:
        return 0
    masses, over = np.empty(logits.shape[1]), np.zeros(requests, np.bool_)
    every, packing = np.arange(requests), np.empty(9 * requests, np.int64)
    line, pack = np.int64(packing.ctypes.data), packs.copy()  # positions, rows and segments
    first(packing, requests, positions, packs[0, 0], packs[0, 1])
    pack[0, 0], pack[0, 1] = line + 8 * requests, line + 16 * requests
    for step in range(steps):
        begin = step * requests
        for r in range(requests):
            weigh(logits[begin + r], warpings[r], masses)
            token = draw(masses, numbers[step, r])
            tokens[step, r] = token
            over[r] |= token in ends
        if step + 1 == steps or over.all():
            return step + 1
        begin += requests
        answers[0] = logits[begin:].ctypes.data
        carry_out(
            lines, reals, work, answers, np.int64(tokens[step].ctypes.data), line,
            np.int64(every.ctypes.data), requests, requests, caches, pack, team,
        )  # fmt: skip
        note(logits[begin : begin + requests], tops, begin)
        for r in range(requests):
            packing[r] += 1
            packing[requests + r] += 1
            packing[2 * requests + 7 * r + 3] += 1
    return steps


LINES = types.Array(types.int64, 2, "C", readonly=False)
REALS = types.Array(types.float64, 2, "C")
INTEGERS, NUMBERS = types.Array(types.int64, 1, "C"), types.Array(types.float64, 1, "C")
ROW, ROWS = (types.Array(types.float32, n, "C") for n in (1, 2))
FOUND = types.Tuple((ROWS, LINES, NUMBERS))
RUN = types.void(
    LINES, REALS, types.int64, INTEGERS, types.int64, types.int64, types.int64, types.int64,
    types.int64, LINES, LINES, types.int64,
)  # fmt: skip
CALL = types.int64(
    LINES, REALS, *[types.int64] * 6, ROWS, FOUND, LINES, LINES, LINES, REALS, REALS, INTEGERS,
    types.int64,
)  # fmt: skip
MULTIPLY = types.void(*[types.int64] * 7, types.float32, types.int64)
SERVE = types.void(types.int64, types.int64)
FIND = types.void(ROWS, ROWS, LINES)
SPREAD = types.void(ROWS, NUMBERS, types.float64, NUMBERS)
LEAVE = types.void(ROW, *[types.float64] * 4, ROW)


def compiled(stamp: int, **options: Any) -> tuple[Any, ...]:
    """Compile, or read from numba's cache, the functions that Python calls.

    Args:
        stamp: a number that differs when the source does: numba itself looks at one function alone
        options: those of njit

    Returns:
        `run`, which carries out a program, `passes`, which also reads the logits and draws chains,
        `multiply`, a product alone, `serve`, which helps others, and the three of
        `decoders.engine.kernels.select`
    """

    @njit(MULTIPLY, nogil=True, **options)
    def multiply(x, n, weights, size, width, out, bias, factor, team):
        if stamp:
            product(x, n, weights, size, width, out, bias, factor, team)

    @njit(SERVE, nogil=True, **options)
    def serve(team, thread):
        if stamp:
            help_others(team, thread)

    @njit(RUN, nogil=True, **options)
    def run(lines, reals, work, answers, ids, positions, wanted, n, n_wanted, caches, packs, team):
        if stamp:
            carry_out(
                lines, reals, work, answers, ids, positions, wanted, n, n_wanted, caches, packs,
                team,
            )  # fmt: skip

    @njit(CALL, nogil=True, **options)
    def passes(
        lines, reals, work, ids, positions, wanted, n, n_wanted, logits, tops, tokens, caches,
        packs, warpings, numbers, ends, team,
    ):  # fmt: skip
        if stamp:
            return passes_and_draws(
                lines, reals, work, ids, positions, wanted, n, n_wanted, logits, tops, tokens,
                caches, packs, warpings, numbers, ends, team,
            )  # fmt: skip
        return 0

    @njit(FIND, nogil=True, **options)
    def find_in(rows, values, ids):
        if stamp:
            find(rows, values, ids)

    @njit(SPREAD, nogil=True, **options)
    def spread_of(rows, highest, temperature, out):
        if stamp:
            spread(rows, highest, temperature, out)

    @njit(LEAVE, nogil=True, **options)
    def leave_of(row, temperature, prior, top_p, min_p, out):
        if stamp:
            leave(row, temperature, prior, top_p, min_p, out)

    return run, passes, multiply, serve, find_in, spread_of, leave_of
