"""Products of rows with weights in blocks, alone or shared by a team of threads."""

import numpy as np
from numba import carray, njit

from decoders.engine.kernels import team as shared
from decoders.engine.kernels.tiles import (
    BLOCK,
    MOST,
    bits_of,
    five,
    four,
    number_of,
    one,
    pointer,
    six,
    three,
    two,
)  # fmt: skip

# Multiplications that are worth the time in which a second thread hears of them.
WORTHWHILE = 2**16


@njit
def multiply_block(block, x, n, weights, size, width, out, bias, factor):
    """The outputs of one block: x (n, size) by weights -> out (n, width); bias may be 0.

    All but numbers are addresses.
    """
    start = block * BLOCK
    count = min(BLOCK, width - start)
    part = weights + 2 * start * size
    spare = np.empty(MOST * BLOCK if count < BLOCK else 0, np.float32)
    row = 0
    while row < n:
        rows = min(MOST, n - row)
        # A block that sticks out is multiplied aside.
        into, apart = out + 4 * (row * width + start), width
        if count < BLOCK:
            into, apart = spare.ctypes.data, BLOCK
        line = x + 4 * row * size
        if rows == 1:
            one(line, part, size, into, apart, factor)
        elif rows == 2:
            two(line, part, size, into, apart, factor)
        elif rows == 3:
            three(line, part, size, into, apart, factor)
        elif rows == 4:
            four(line, part, size, into, apart, factor)
        elif rows == 5:
            five(line, part, size, into, apart, factor)
        else:
            six(line, part, size, into, apart, factor)
        if count < BLOCK:
            for i in range(rows):
                target = carray(pointer(out + 4 * ((row + i) * width + start)), (count,))
                target[:] = spare[i * BLOCK : i * BLOCK + count]
        row += rows
    if bias != 0:
        shift = carray(pointer(bias + 4 * start), (count,))
        for i in range(n):
            target = carray(pointer(out + 4 * (i * width + start)), (count,))
            for j in range(count):
                target[j] += shift[j]


@njit
def product(x, n, weights, size, width, out, bias, factor, team):
    """All blocks; `team` is the address of the words of a `team.Team`, or 0."""
    blocks = (width + BLOCK - 1) // BLOCK
    if team == 0 or blocks < 2 or n * size * width < WORTHWHILE:
        for block in range(blocks):
            multiply_block(block, x, n, weights, size, width, out, bias, factor)
        return
    own = 0
    shared.publish(team, blocks, (x, n, weights, size, width, out, bias, np.int64(bits_of(factor))))
    block = shared.take(team, blocks)
    while block >= 0:
        multiply_block(block, x, n, weights, size, width, out, bias, factor)
        own += 1
        block = shared.take(team, blocks)
    shared.finish(team, blocks - own)


@njit
def help_with_products(team):
    """Multiply blocks of whatever products are opened, until none has been for a while."""
    argument = team + shared.ARGUMENTS
    shared.add(team + shared.AWAKE, 1)
    idle = 0
    while idle < shared.PATIENCE:
        ticket = shared.look(team + shared.TICKET)
        block = ticket & shared.TAKEN
        idle += 1
        if block >= shared.look(argument):
            shared.pause()
            continue
        x, n, weights = (
            shared.look(argument + 8),
            shared.look(argument + 16),
            shared.look(argument + 24),
        )
        size, width, out = (
            shared.look(argument + 32),
            shared.look(argument + 40),
            shared.look(argument + 48),
        )
        bias, factor = shared.look(argument + 56), number_of(np.int32(shared.look(argument + 64)))
        # If it has changed, the arguments may be those of another product.
        if shared.swap(team + shared.TICKET, ticket, ticket + 1):
            multiply_block(block, x, n, weights, size, width, out, bias, factor)
            shared.add(team + shared.DONE, 1)
            idle = 0
    shared.add(team + shared.AWAKE, -1)
