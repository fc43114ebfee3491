"""The tasks of a pass that threads share: products by blocks, attention by tokens.

A team's words in memory say which task is open and how many of its parts are taken. Whoever takes a
part, the caller or a helper, does it: a helper that is late takes fewer, and which thread does a
part changes no bit.
"""

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import carray, njit, types
from numba.extending import intrinsic

from decoders.engine.kernels.operators import ROOM, attend_token
from decoders.engine.kernels.tiles import (
    BLOCK,
    MOST,
    multiply_tile,
    pointer,
    pointer_to_integers,
)

I64 = ir.IntType(64)


def word(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, I64.as_pointer())


@intrinsic
def look(context: Any, address: Any) -> Any:
    """The word at an address, and then whatever was written before it."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(word(builder, arguments[0]), "seq_cst", 8)

    return types.int64(types.int64), code


def changing(operation: str) -> Any:
    """A function of an address and a number that changes the word there by this operation.

    It does so after whatever was written before, and before whatever comes.
    """

    @intrinsic
    def run(context: Any, address: Any, number: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address, number = arguments
            builder.atomic_rmw(operation, word(builder, address), number, "seq_cst")
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), code

    return run


put, add = changing("xchg"), changing("add")


@intrinsic
def swap(context: Any, address: Any, before: Any, after: Any) -> Any:
    """Write `after` if the word is `before`; return whether it was."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, before, after = arguments
        pair = builder.cmpxchg(word(builder, address), before, after, "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64), code


@intrinsic
def pause(context: Any) -> Any:
    """Let a moment pass in a loop that waits, for the sake of whoever shares the core."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if binding.get_process_triple().startswith("x86_64"):
            name, kind = "llvm.x86.sse2.pause", ir.FunctionType(ir.VoidType(), [])
            known = builder.module.globals
            builder.call(known.get(name) or ir.Function(builder.module, kind, name), [])
        return context.get_dummy_value()

    return types.void(), code


@intrinsic
def bits_of_real(context: Any, number: Any) -> Any:
    """The bits of a float64 number."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], I64)

    return types.int64(types.float64), code


@intrinsic
def real_of(context: Any, bits: Any) -> Any:
    """The float64 number with these bits."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), code


# Where words stand, in bytes, each on lines of the cache of its own: the open task's number times
# 2 ** 32 plus the parts taken; parts that helpers have done; helpers that are awake; how often one
# was late; threads; turns of a waiting loop that take a millisecond; the open task: its parts, its
# kind and its arguments.
TICKET, DONE, AWAKE, LATE, THREADS, TURNS, TASK = 0, 128, 256, 320, 328, 336, 384
INTEGERS, REALS = 15, 2
SIZE = TASK + 8 * (2 + INTEGERS + REALS)
TAKEN = 2**32 - 1  # the parts of a ticket
CLOSED = 2**31  # more than there are parts
PATIENCE = 2  # milliseconds that a helper waits for the next task
SLOWEST = 2_000_000  # multiplications of a part that take a millisecond at most
# Multiplications that are worth the time in which a second thread hears of them.
WORTHWHILE = 2**16
MULTIPLY, ATTEND = 0, 1


@njit
def multiply_block(block, x, n, weights, size, width, out, bias, factor, scratch):
    """The outputs of one block: x (n, size) by weights -> out (n, width); bias may be 0.

    All but numbers are addresses.
    """
    start = block * BLOCK
    count = min(BLOCK, width - start)
    part = weights + 2 * start * size
    spare = carray(pointer(scratch), (MOST * BLOCK,))
    row, tiles = 0, (n + MOST - 1) // MOST
    while row < n:
        # Tiles of one height: 15 rows are 8 and 7, not 14 and 1, whose weights would come for one.
        rows = (n - row + tiles - 1) // tiles
        tiles -= 1
        # A block that sticks out is multiplied aside.
        into, apart = out + 4 * (row * width + start), width
        if count < BLOCK:
            into, apart = scratch, BLOCK
        line = x + 4 * row * size
        multiply_tile(rows, line, part, size, into, apart, factor)
        if count < BLOCK:
            for i in range(rows):
                target = carray(pointer(out + 4 * ((row + i) * width + start)), (count,))
                for j in range(count):
                    target[j] = spare[i * BLOCK + j]
        row += rows
    if bias != 0:
        shift = carray(pointer(bias + 4 * start), (count,))
        for i in range(n):
            target = carray(pointer(out + 4 * (i * width + start)), (count,))
            for j in range(count):
                target[j] += shift[j]


@njit
def do(kind, part, n, r, thread):
    """Do a part of a task with these integers and real numbers.

    It allocates nothing, so nothing can go wrong while others wait for it: each thread has its own
    piece of the scratch, whose address and whose bytes for a thread are the last integers.
    """
    scratch = n[13] + thread * n[14]
    if kind == MULTIPLY:
        factor = np.float32(r[0])
        multiply_block(part, n[0], n[1], n[2], n[3], n[4], n[5], n[6], factor, scratch)
    else:
        # Tokens before heads: what one reads of keys and values the next finds in the cache.
        tokens = carray(pointer_to_integers(n[7]), (n[8], 7))[n[8] - 1, 1]
        attend_token(
            part % tokens, part // tokens, n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8],
            n[9], n[10], r[0], r[1], n[11], n[12], scratch,
        )  # fmt: skip


@njit
def share(kind, parts, worth, n, r, team):
    """Do all parts of a task, with the team whose words are at an address, or alone if it is 0.

    Args:
        kind: MULTIPLY or ATTEND
        parts: their number
        worth: multiplications of all parts
        n, r: see `do`
        team: the address
    """
    if team == 0 or parts < 2 or worth < WORTHWHILE:
        for part in range(parts):
            do(kind, part, n, r, 0)
        return
    number = (look(team + TICKET) >> 32) + 1
    # Who has seen the task before takes no part of this one with that one's arguments.
    put(team + TICKET, number << 32 | CLOSED)
    put(team + TASK, parts)
    put(team + TASK + 8, kind)
    for i in range(INTEGERS):
        put(team + TASK + 16 + 8 * i, n[i])
    for i in range(REALS):
        put(team + TASK + 16 + 8 * (INTEGERS + i), bits_of_real(r[i]))
    put(team + DONE, 0)
    put(team + TICKET, number << 32)
    own = 0
    while True:
        ticket = look(team + TICKET)
        if ticket & TAKEN >= parts:
            break
        if swap(team + TICKET, ticket, ticket + 1):
            do(kind, ticket & TAKEN, n, r, 0)
            own += 1
    turns = 0
    while look(team + DONE) < parts - own:
        pause()
        turns += 1
    if turns > look(team + TURNS) * (1 + worth // parts // SLOWEST):
        add(team + LATE, 1)


@njit
def integer(team, i):
    return look(team + TASK + 16 + 8 * i)


@njit
def help_others(team, thread):
    """Do parts of whatever tasks are opened, until none has been for a while."""
    add(team + AWAKE, 1)
    idle, patience = 0, PATIENCE * look(team + TURNS)
    while idle < patience:
        ticket = look(team + TICKET)
        idle += 1
        if ticket & TAKEN >= look(team + TASK):
            pause()
            continue
        kind = look(team + TASK + 8)
        n = (
            integer(team, 0), integer(team, 1), integer(team, 2), integer(team, 3),
            integer(team, 4), integer(team, 5), integer(team, 6), integer(team, 7),
            integer(team, 8), integer(team, 9), integer(team, 10), integer(team, 11),
            integer(team, 12), integer(team, 13), integer(team, 14),
        )  # fmt: skip
        r = real_of(integer(team, INTEGERS)), real_of(integer(team, INTEGERS + 1))
        # If it has changed, these may be the arguments of another task.
        if swap(team + TICKET, ticket, ticket + 1):
            do(kind, ticket & TAKEN, n, r, thread)
            add(team + DONE, 1)
            idle = 0
    add(team + AWAKE, -1)


@njit
def threads_of(team):
    return look(team + THREADS) if team != 0 else 1


@njit
def product(x, n, weights, size, width, out, bias, factor, team):
    """x (n, size) by weights in blocks -> out (n, width); all are addresses; bias may be 0."""
    blocks = (width + BLOCK - 1) // BLOCK
    no, bytes = np.int64(0), 4 * MOST * BLOCK
    scratch = np.empty(threads_of(team) * bytes, np.uint8)
    place = np.int64(scratch.ctypes.data)
    integers = (x, n, weights, size, width, out, bias, no, no, no, no, no, no, place, bytes)
    share(MULTIPLY, blocks, n * size * width, integers, (np.float64(factor), 0.0), team)
    scratch[:1] = 0  # it lives until here


@njit
def attend(q, heads, groups, size, wide, keys, values, segments, requests, masks, window, scale,
           softcap, sinks, out, team):  # fmt: skip
    """Attention of packed tokens, q (n, heads, size) -> out (n, heads, wide).

    `decoders.engine.attention.interface.Packing` tells what segments (requests, 7), masks and
    window are. Keys are (rows, heads / groups, size), values (rows, heads / groups, wide).
    """
    lines = carray(pointer_to_integers(segments), (requests, 7))
    rows, longest = 0, 0
    for r in range(requests):
        tokens = lines[r, 1] - lines[r, 0]
        rows += tokens * (lines[r, 3] + tokens)
        longest = max(longest, lines[r, 3] + tokens)
    bytes = (longest * (8 + 4 * groups) + ROOM + 7) // 8 * 8  # numbers of rows are aligned
    scratch = np.empty(threads_of(team) * bytes, np.uint8)
    integers = (
        q, heads, groups, size, wide, keys, values, segments, requests, masks, window, sinks, out,
        np.int64(scratch.ctypes.data), bytes,
    )  # fmt: skip
    worth = rows * heads * (size + wide)
    share(
        ATTEND, lines[requests - 1, 1] * (heads // groups), worth, integers, (scale, softcap), team
    )
    scratch[:1] = 0  # it lives until here
