"""Numba's kernels for passes on a CPU, and the program that strings them together.

Here is what they are told by number: instructions (Code), number types (NumberType), and where the
words of a team of threads lie. Only this and `loading` may be imported without numba.
"""

from enum import IntEnum


class Code(IntEnum):
    """What an instruction does.

    For the kernels of a CPU a line of a program is its code, the places of x, y, z and of the
    result, and seven whole numbers; two real ones stand in a line beside it. A place counts float32
    numbers for each token from the begin of the workspace; a negative one counts answers, -1 the
    first. An operand that an instruction lacks is 0. The last whole number says when results are
    rounded to bfloat16: 0 never, 1 at the end, 2 after each operator of the model that the
    instruction stands for. The others are:

        EMBED: address of the table, width, NumberType of the table; factor
        NORM: address of the weight, width, rows for each token; eps
        ANGLES: address of the frequencies, half of a head; scales of the cosines, which are the
            result, and of the sines, which go to z
        ROTATE x by y and z: heads, size of a head
        ATTEND x to y and z: layer, heads, heads that share a key, size of keys, size of values,
            address of the sinks or 0; scale, softcap
        PRODUCT: address of the weights, inputs, outputs, address of the bias or 0, whether x has
            wanted rows alone, NumberType of the weights; factor
        GATED: width, place of the activation in ACTIVATIONS
        ADD: width
        SELECT: width
        CAP: width, whether x has wanted rows alone; the largest size that numbers come near to
    """

    EMBED = 0
    NORM = 1
    ANGLES = 2
    ROTATE = 3
    ATTEND = 4
    PRODUCT = 5
    GATED = 6
    ADD = 7
    SELECT = 8
    CAP = 9


PLACES, INTEGERS = 4, 7
ACTIVATIONS = "silu", "gelu_tanh", "gelu"


class NumberType(IntEnum):
    """How numbers are stored that kernels read. They compute in float32.

    Weights of a product lie in blocks, or row by row as the model has them (ROWS, in bfloat16).
    """

    FLOAT32 = 0
    FLOAT16 = 1
    BFLOAT16 = 2
    ROWS = 3


# Where words stand, in bytes, each on lines of the cache of its own: the open task's number times
# 2 ** 32 plus the parts taken; parts that helpers have done; helpers that are awake; how often one
# was late; threads; turns of a waiting loop that take a millisecond; the open task: its parts, its
# kind and its arguments.
TICKET, DONE, AWAKE, LATE, THREADS, TURNS, TASK = 0, 128, 256, 320, 328, 336, 384
ARGUMENTS, REALS = 16, 2  # of a task: whole numbers, real ones
SIZE = TASK + 8 * (2 + ARGUMENTS + REALS)
TAKEN = 2**32 - 1  # the parts of a ticket
CLOSED = 2**31  # more than there are parts
PATIENCE = 2  # milliseconds that a helper waits for the next task
