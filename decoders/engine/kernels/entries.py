"""The kernels that Python calls (compiled)."""

from typing import Any

from numba import njit, types

from decoders.engine.kernels.parts import help_others, product
from decoders.engine.kernels.program import carry_out
from decoders.engine.kernels.program import passes as passes_and_draws
from decoders.engine.kernels.select import find, leave, spread

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
