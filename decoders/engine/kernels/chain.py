"""Chains: passes of one token a request, each drawn from the pass before (chain)."""

import numpy as np
from numba import carray, njit

from decoders.engine.kernels.guess import draw, weigh
from decoders.engine.kernels.program import carry_out
from decoders.engine.kernels.scan import note
from decoders.engine.kernels.tiles import pointer, pointer_to_integers


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


@njit
def chain(
    lines, reals, work, before, logits, found, tokens, positions, caches, packs, warpings,
    numbers, ends, team,
):  # fmt: skip
    """Draw a chain for each request.

    Args:
        lines, reals, work, caches: those of `run`
        before: address of the logits of the pass that is over, which each request's last token
            wants, (requests, V)
        logits: receives those before each token, (steps, requests, V)
        found: what is read of these rows, see `note`
        tokens: receives the tokens, (steps, requests)
        positions: address of the positions of the pass that is over
        packs: one line, that of the pass that is over, without masks
        warpings: see `weigh`, (requests, 5)
        numbers: the uniform numbers that draw, (steps, requests)
        ends: tokens that end a text; the chains end where all texts have ended
        team: that of `decoders.engine.kernels.parts.share`

    Returns:
        the number of tokens of each; the last one is not fed
    """
    steps, requests = tokens.shape
    answers, wanted = np.empty(1, np.int64), np.arange(requests)
    masses = np.empty(logits.shape[2])
    packing = np.empty(9 * requests, np.int64)  # positions, rows and segments
    line, pack = np.int64(packing.ctypes.data), packs.copy()
    over = np.zeros(requests, np.bool_)
    first(packing, requests, positions, packs[0, 0], packs[0, 1])
    pack[0, 0], pack[0, 1] = line + 8 * requests, line + 16 * requests
    rows = carray(pointer(before), (requests, logits.shape[2]))
    for r in range(requests):
        for i in range(logits.shape[2]):  # numba compiles an assignment of rows for a second
            logits[0, r, i] = rows[r, i]
    for step in range(steps):
        note(logits[step], found, step * requests)
        for r in range(requests):
            weigh(logits[step, r], warpings[r], masses)
            token = draw(masses, numbers[step, r])
            tokens[step, r] = token
            over[r] |= token in ends
        if step + 1 == steps or over.all():
            return step + 1
        answers[0] = logits[step + 1].ctypes.data
        carry_out(
            lines, reals, work, answers, np.int64(tokens[step].ctypes.data), line,
            np.int64(wanted.ctypes.data), requests, requests, caches, pack, team,
        )  # fmt: skip
        for r in range(requests):
            packing[r] += 1
            packing[requests + r] += 1
            packing[2 * requests + 7 * r + 3] += 1
    return steps
