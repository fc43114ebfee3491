"""The program that a pass is: instructions over one array of rows, which one function carries out.

It is compiled once for all models, because what differs between them is data: an instruction is a
line of numbers.
"""

from typing import Any

import numpy as np
from numba import njit, types

from decoders.engine.kernels import operators
from decoders.engine.kernels.codes import PLACES, Code
from decoders.engine.kernels.guess import guess
from decoders.engine.kernels.parts import attend, help_others, product

embed, norm, angles, rotate = operators.embed, operators.norm, operators.angles, operators.rotate
gated, add, select, write = operators.gated, operators.add, operators.select, operators.write

EMBED, NORM, ANGLES, ROTATE, ATTEND, PRODUCT, GATED, ADD, SELECT = map(int, Code)
LINES = types.Array(types.int64, 2, "C", readonly=False)
RUN = types.void(
    LINES, types.Array(types.float64, 2, "C"), types.int64, types.Array(types.int64, 1, "C"),
    types.int64, types.int64, types.int64, types.int64, types.int64, LINES, LINES, types.int64,
)  # fmt: skip
AHEAD = types.int64(
    LINES, types.Array(types.float64, 2, "C"), types.int64, types.Array(types.float32, 3, "C"),
    LINES, LINES, types.int64, LINES, LINES, types.Array(types.float64, 2, "C"),
    types.Array(types.float64, 2, "C"), types.Array(types.int64, 1, "C"), types.int64, types.int64,
)  # fmt: skip
MULTIPLY = types.void(*[types.int64] * 7, types.float32, types.int64)
SERVE = types.void(types.int64, types.int64)


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


def compiled(stamp: int, **options: Any) -> tuple[Any, Any, Any, Any]:
    """Compile, or read from numba's cache, the functions that Python calls.

    Args:
        stamp: a number that differs when the source does: numba itself looks at one function alone
        options: those of njit

    Returns:
        `run`, which carries out a program, `ahead`, which carries out further passes, `multiply`, a
        product alone, and `serve`, which helps others
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
        lines, reals, work, logits, tokens, later, requests, caches, packs, warpings, numbers,
        ends, steps, team,
    ):  # fmt: skip
        """Passes of one token a request, each guessed from the logits of the pass before.

        Args:
            lines, reals, work, caches: those of `run`
            logits: of each pass, the first of which is over, (1 + passes, requests, V)
            tokens: the tokens guessed, (passes, requests)
            later: of each pass its positions, rows and segments, one after another,
                (passes, 9 * requests)
            requests: their number
            packs: one line, with what all passes share
            warpings: see `guess`, (requests, 5)
            numbers: the uniform numbers of the guesses, (passes, requests)
            ends: tokens that end a text; passes after which all texts have ended are left out
            steps: passes to make
            team: that of `decoders.engine.kernels.parts.share`

        Returns:
            the number of passes made
        """
        answers, wanted = np.empty(1, np.int64), np.arange(requests)
        pack = packs.copy()
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
            line = later[step].ctypes.data
            pack[0, 0], pack[0, 1] = line + 8 * requests, line + 16 * requests
            # Not `run`: a function that closes over another one is never found in numba's cache.
            carry_out(
                lines, reals, work, answers, tokens[step].ctypes.data, line, wanted.ctypes.data,
                requests, requests, caches, pack, team,
            )  # fmt: skip
        return steps

    return run, ahead, multiply, serve
