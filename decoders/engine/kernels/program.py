"""The program that a pass is: instructions over one array of rows, which one function carries out.

It is compiled once for all models, because what differs between them is data: an instruction is a
line of numbers.
"""

from typing import Any

import numpy as np
from numba import carray, njit, types

from decoders.engine.kernels import operators
from decoders.engine.kernels.codes import PLACES, Code
from decoders.engine.kernels.guess import guess
from decoders.engine.kernels.parts import attend, help_others, product
from decoders.engine.kernels.scan import find, spread
from decoders.engine.kernels.tiles import pointer, pointer_to_integers

embed, norm, angles, rotate = operators.embed, operators.norm, operators.angles, operators.rotate
gated, add, select, write = operators.gated, operators.add, operators.select, operators.write

EMBED, NORM, ANGLES, ROTATE, ATTEND, PRODUCT, GATED, ADD, SELECT = map(int, Code)
LINES = types.Array(types.int64, 2, "C", readonly=False)
RUN = types.void(
    LINES, types.Array(types.float64, 2, "C"), types.int64, types.Array(types.int64, 1, "C"),
    types.int64, types.int64, types.int64, types.int64, types.int64, LINES, LINES, types.int64,
)  # fmt: skip
AHEAD = types.int64(
    LINES, types.Array(types.float64, 2, "C"), types.int64, types.int64,
    types.Array(types.float32, 3, "C"), LINES, types.int64, LINES, LINES,
    types.Array(types.float64, 2, "C"), types.Array(types.float64, 2, "C"),
    types.Array(types.int64, 1, "C"), types.int64,
)  # fmt: skip
MULTIPLY = types.void(*[types.int64] * 7, types.float32, types.int64)
SERVE = types.void(types.int64, types.int64)
ROWS = types.Array(types.float32, 2, "C")
FIND = types.void(ROWS, ROWS, LINES)
NUMBERS = types.Array(types.float64, 1, "C")
SPREAD = types.void(ROWS, NUMBERS, types.float64, NUMBERS)


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
    kept = carray(pointer_to_integers(rows), (tokens,))
    for r in range(requests):
        line, last = lines[r], lines[r, 1] - 1
        packing[r], packing[requests + r] = places[last] + 1, kept[last] + 1
        segment = packing[2 * requests + 7 * r : 2 * requests + 7 * r + 7]
        segment[0], segment[1], segment[2] = r, r + 1, line[2]
        segment[3], segment[4], segment[5], segment[6] = line[3] + line[1] - line[0], -1, -1, 0


def compiled(stamp: int, **options: Any) -> tuple[Any, ...]:
    """Compile, or read from numba's cache, the functions that Python calls.

    Args:
        stamp: a number that differs when the source does: numba itself looks at one function alone
        options: those of njit

    Returns:
        `run`, which carries out a program, `ahead`, which carries out further passes, `multiply`, a
        product alone, `serve`, which helps others, and the two of `decoders.engine.kernels.scan`
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

    @njit(AHEAD, nogil=True, **options)
    def ahead(
        lines, reals, work, before, logits, tokens, positions, caches, packs, warpings, numbers,
        ends, team,
    ):  # fmt: skip
        """Passes of one token a request, each guessed from the logits of the pass before.

        Args:
            lines, reals, work, caches: those of `run`
            before: address of the logits of the pass that is over, which each request's last token
                wants, (requests, V)
            logits: of all passes, that one included, (1 + passes, requests, V)
            tokens: the tokens guessed, (passes, requests)
            positions: address of the positions of the pass that is over
            packs: one line, that of the pass that is over, without masks
            warpings: see `guess`, (requests, 5)
            numbers: the uniform numbers of the guesses, (passes, requests)
            ends: tokens that end a text; passes after which all texts have ended are left out
            team: that of `decoders.engine.kernels.parts.share`

        Returns:
            the number of passes made
        """
        steps, requests = tokens.shape
        answers, wanted = np.empty(1, np.int64), np.arange(requests)
        packing = np.empty(9 * requests, np.int64)  # positions, rows and segments
        line, pack = packing.ctypes.data, packs.copy()
        first(packing, requests, positions, packs[0, 0], packs[0, 1])
        pack[0, 0], pack[0, 1] = line + 8 * requests, line + 16 * requests
        logits[0] = carray(pointer(before), (requests, logits.shape[2]))
        for step in range(steps if stamp else 0):
            ended = 0
            for r in range(requests):
                t, held, known, top_p, min_p = warpings[r]
                token = guess(
                    logits[step, r], t, int(held), known > 0, top_p, min_p, numbers[step, r]
                )
                tokens[step, r] = token
                for end in ends:
                    ended += token == end
            if ended == requests:
                return step
            answers[0] = logits[step + 1].ctypes.data
            # Not `run`: a function that closes over another one is never found in numba's cache.
            carry_out(
                lines, reals, work, answers, tokens[step].ctypes.data, line, wanted.ctypes.data,
                requests, requests, caches, pack, team,
            )  # fmt: skip
            for r in range(requests):
                packing[r] += 1
                packing[requests + r] += 1
                packing[2 * requests + 7 * r + 3] += 1
        return steps

    @njit(FIND, nogil=True, **options)
    def find_in(rows, values, ids):
        if stamp:
            find(rows, values, ids)

    @njit(SPREAD, nogil=True, **options)
    def spread_of(rows, highest, temperature, out):
        if stamp:
            spread(rows, highest, temperature, out)

    return run, ahead, multiply, serve, find_in, spread_of
