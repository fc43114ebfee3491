"""The program that a pass is: instructions over one array of rows, which one function carries out.

It is compiled once for all models, because what differs between them is data: an instruction is a
line of numbers.
"""

import numpy as np
from numba import njit

from decoders.engine.kernels import operators
from decoders.engine.kernels.codes import PLACES, Code
from decoders.engine.kernels.parts import attend, product

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
