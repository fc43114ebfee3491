"""What kernels are told by number: instructions (Code); this needs no numba."""

from enum import IntEnum


class Code(IntEnum):
    """What an instruction does.

    For the kernels of a CPU, which lack CAP, a line of a program is its code, the places of x, y, z
    and of the result, and six whole numbers; two real ones stand in a line beside it. A place
    counts float32 numbers for each token from the begin of the workspace; a negative one counts
    answers, -1 the first. An operand that an instruction lacks is 0. The numbers are:

        EMBED: address of the table, width
        NORM: address of the weight, width, rows for each token; eps
        ANGLES: address of the frequencies, half of a head; scales of the cosines, which are the
            result, and of the sines, which go to z
        ROTATE x by y and z: heads, size of a head
        ATTEND x to y and z: layer, heads, heads that share a key, size of keys, size of values,
            address of the sinks or 0; scale, softcap
        PRODUCT: address of the weights, inputs, outputs, address of the bias or 0, whether x has
            wanted rows alone; factor
        GATED, ADD: width
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


PLACES, INTEGERS = 4, 6
