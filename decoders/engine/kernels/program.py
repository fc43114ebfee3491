"""A pass as a program, threads that share its tasks (Team), and what Python calls (compiled).

A program is instructions over one array of rows, which one function carries out. It is compiled
once for all models, because what differs between them is data: an instruction is a line of numbers.
Products are shared by blocks, attention by tokens. A team's words in memory say which task is open
and how many of its parts are taken. Whoever takes a part, the caller or a helper, does it: a helper
that is late takes fewer, and which thread does a part changes no bit.
"""

import atexit
import os
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numba import carray, njit, types

from decoders.engine.kernels import (
    ARGUMENTS,
    AWAKE,
    CLOSED,
    DONE,
    LATE,
    PATIENCE,
    PLACES,
    REALS,
    SIZE,
    TAKEN,
    TASK,
    THREADS,
    TICKET,
    TURNS,
    Code,
    NumberType,
)
from decoders.engine.kernels.operators import (
    ROOM,
    add,
    angles,
    attend_token,
    cap,
    embed,
    gated,
    norm,
    rotate,
    round_off,
    select,
    write,
)
from decoders.engine.kernels.select import draw, find, heat, note, nucleus, spread, weigh
from decoders.engine.kernels.tiles import (
    BLOCK,
    DOTS,
    MOST,
    increase,
    look,
    multiply_rows,
    multiply_tile,
    pause,
    pointer,
    pointer_to_bytes,
    pointer_to_integers,
    put,
    swap,
)

SLOWEST = 2_000_000  # multiplications of a part that take a millisecond at most
LINE = 128  # bytes
LARGEST = 8  # threads: more would wait for each other; only two were measured
TRIAL = 10_000  # turns of a waiting loop, to see what they take
AT_EXIT = 0.1  # seconds
RESTS = 1.0, 1024.0  # passes without helpers, the least and the most
FORGOTTEN = 1 / 16  # of the rest, by a pass in which no helper was late
# Multiplications that are worth the time in which a second thread hears of them.
WORTHWHILE = 2**16
A_PRODUCT, AN_ATTENTION = 0, 1
BY_ROWS = int(NumberType.ROWS)


@njit
def multiply_block(block, x, n, weights, size, width, out, bias, form, factor, scratch):
    """The outputs of one block: x (n, size) by weights -> out (n, width); bias may be 0.

    All but numbers are addresses.
    """
    start = block * BLOCK
    count = min(BLOCK, width - start)
    part = weights + 2 * start * size
    spare = carray(pointer(scratch), (MOST * BLOCK,))
    row, tiles = 0, (n + MOST - 1) // MOST
    if form == BY_ROWS:
        while row < n:
            line, into = x + 4 * row * size, out + 4 * (row * width + start)
            multiply_rows(min(DOTS, n - row), line, part, size, into, width, count, factor)
            row += DOTS
    while row < n:
        # Tiles of one height: 15 rows are 8 and 7, not 14 and 1, whose weights would come for one.
        rows = (n - row + tiles - 1) // tiles
        tiles -= 1
        # A block that sticks out is multiplied aside.
        into, apart = out + 4 * (row * width + start), width
        if count < BLOCK:
            into, apart = scratch, BLOCK
        line = x + 4 * row * size
        multiply_tile(rows, form, line, part, size, into, apart, factor)
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
    scratch = n[14] + thread * n[15]
    if kind == A_PRODUCT:
        factor = np.float32(r[0])
        multiply_block(part, n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], factor, scratch)
    else:
        # Tokens before heads: what one reads of keys and values the next finds in the cache.
        tokens = carray(pointer_to_integers(n[7]), (n[8], 6))[n[8] - 1, 1]
        attend_token(
            part % tokens, part // tokens, n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8],
            n[9], n[10], r[0], r[1], n[11], n[12], n[13], scratch,
        )  # fmt: skip


@njit
def share(kind, parts, worth, n, r, team):
    """Do all parts of a task, with the team whose words are at an address, or alone if it is 0.

    Args:
        kind: A_PRODUCT or AN_ATTENTION
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
    for i in range(ARGUMENTS):
        put(team + TASK + 16 + 8 * i, n[i])
    for i in range(REALS):
        put(team + TASK + 16 + 8 * (ARGUMENTS + i), np.float64(r[i]).view(np.int64))
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
        increase(team + LATE, 1)


@njit
def integer(team, i):
    return look(team + TASK + 16 + 8 * i)


@njit
def help_others(team, thread):
    """Do parts of whatever tasks are opened, until none has been for a while."""
    increase(team + AWAKE, 1)
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
            integer(team, 12), integer(team, 13), integer(team, 14), integer(team, 15),
        )  # fmt: skip
        first = np.int64(integer(team, ARGUMENTS)).view(np.float64)
        r = first, np.int64(integer(team, ARGUMENTS + 1)).view(np.float64)
        # If it has changed, these may be the arguments of another task.
        if swap(team + TICKET, ticket, ticket + 1):
            do(kind, ticket & TAKEN, n, r, thread)
            increase(team + DONE, 1)
            idle = 0
    increase(team + AWAKE, -1)


@njit
def threads_of(team):
    return look(team + THREADS) if team != 0 else 1


@njit
def product(x, n, weights, size, width, out, bias, form, factor, team):
    """x (n, size) by weights in blocks -> out (n, width); all are addresses; bias may be 0."""
    blocks = (width + BLOCK - 1) // BLOCK
    no, bytes = np.int64(0), 4 * MOST * BLOCK
    scratch = np.empty(threads_of(team) * bytes, np.uint8)
    place = np.int64(scratch.ctypes.data)
    integers = (x, n, weights, size, width, out, bias, form, no, no, no, no, no, no, place, bytes)
    share(A_PRODUCT, blocks, n * size * width, integers, (np.float64(factor), 0.0), team)
    scratch[:1] = 0  # it lives until here


@njit
def attend(q, heads, groups, size, wide, keys, values, segments, requests, masks, window, scale,
           softcap, sinks, out, narrow, team):  # fmt: skip
    """Attention of packed tokens, q (n, heads, size) -> out (n, heads, wide).

    `decoders.engine.attention.interface.Packing` tells what segments (requests, 6), masks and
    window are. Keys are (rows, heads / groups, size), values (rows, heads / groups, wide); they are
    stored in bfloat16 if `narrow` is 1, in float32 if it is 0.
    """
    lines = carray(pointer_to_integers(segments), (requests, 6))
    rows, longest = 0, 0
    for r in range(requests):
        tokens = lines[r, 1] - lines[r, 0]
        rows += tokens * (lines[r, 3] + tokens)
        longest = max(longest, lines[r, 3] + tokens)
    bytes = (longest * (8 + 4 * groups) + ROOM + 7) // 8 * 8  # numbers of rows are aligned
    scratch = np.empty(threads_of(team) * bytes, np.uint8)
    integers = (
        q, heads, groups, size, wide, keys, values, segments, requests, masks, window, sinks, out,
        narrow, np.int64(scratch.ctypes.data), bytes,
    )  # fmt: skip
    worth = rows * heads * (size + wide)
    parts = lines[requests - 1, 1] * (heads // groups)
    share(AN_ATTENTION, parts, worth, integers, (scale, softcap), team)
    scratch[:1] = 0  # it lives until here


EMBED, NORM, ANGLES, ROTATE, ATTEND, PRODUCT, GATED, ADD, SELECT, CAP = map(int, Code)
BFLOAT16 = int(NumberType.BFLOAT16)


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
        real, other, rounds = reals[step, 0], reals[step, 1], line[11]
        twice, count = rounds > 1, 0  # count: the numbers that are rounded at the end
        if code == PRODUCT:
            rows = n_wanted if e else n
            product(x, rows, a, b, c, out, d, f, np.float32(real), team)
            count = rows * c
        elif code == NORM:
            norm(x, n * c, a, b, real, twice, out)
            count = n * c * b
        elif code == ROTATE:
            rotate(x, n, a, b, y, z, twice, out)
            count = n * a * b
        elif code == ATTEND:
            cache, pack, narrow = caches[a], packs[caches[a, 2]], min(rounds, 1)
            write(y, n, pack[0], b // c * d, narrow, cache[0])
            write(z, n, pack[0], b // c * e, narrow, cache[1])
            attend(
                x, b, c, d, e, cache[0], cache[1], pack[1], pack[2], pack[3], pack[4], real,
                other, f, out, narrow, team,
            )  # fmt: skip
            count = n * b * e
        elif code == GATED:
            count = n * a
            gated(x, y, count, b, twice, out)
        elif code == ADD:
            count = n * a
            add(x, y, count, out)
        elif code == EMBED:
            embed(ids, n, a, b, c == BFLOAT16, np.float32(real), out)
            count = n * b
        elif code == ANGLES:
            count = n * b
            angles(positions, n, a, b, real, other, out, z)
            if rounds:
                round_off(z, count)
        elif code == SELECT:
            select(x, wanted, n_wanted, a, out)
        elif code == CAP:
            count = (n_wanted if b else n) * a
            cap(x, count, np.float32(real), twice, out)
        if rounds:
            round_off(out, count)


@njit
def first(packing, requests, positions, rows, segments):
    """Write positions, rows and segments of a pass of the tokens after each request's last one."""
    lines = carray(pointer_to_integers(segments), (requests, 6))
    tokens = lines[requests - 1, 1]
    places = carray(pointer_to_integers(positions), (tokens,))
    last_rows = carray(pointer_to_integers(rows), (tokens,))
    for r in range(requests):
        line, last = lines[r], lines[r, 1] - 1
        packing[r], packing[requests + r] = places[last] + 1, last_rows[last] + 1
        segment = packing[2 * requests + 6 * r : 2 * requests + 6 * r + 6]
        segment[0], segment[1], segment[2] = r, r + 1, line[2]
        segment[3], segment[4], segment[5] = line[3] + line[1] - line[0], -1, 0


@njit
def passes_and_draws(
    lines, reals, work, ids, positions, wanted, n, n_wanted, logits, tops, tokens, caches, packs,
    warpings, numbers, ends, entering, states, proposed, team,
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
        entering: of a head the states that the pass begins with, (n, W), else of no rows
        states: receives a head's own states: those of the pass, then those at each further token,
            from which the next one begins, (n + rows, W)
        proposed: a head's tokens by their places in its logits, rising; none if they are all
        team: that of `share`

    Returns:
        the number of tokens of each chain; the last one is not fed
    """
    steps, requests = tokens.shape
    answers = np.empty(3, np.int64)
    answers[0], answers[1], answers[2] = (
        logits.ctypes.data, states.ctypes.data, entering.ctypes.data,
    )  # fmt: skip
    carry_out(lines, reals, work, answers, ids, positions, wanted, n, n_wanted, caches, packs, team)
    note(logits[:n_wanted], tops, 0)
    if steps == 0:
        return 0
    masses, over = np.empty(logits.shape[1]), np.zeros(requests, np.bool_)
    every, packing = np.arange(requests), np.empty(8 * requests, np.int64)
    line, pack = np.int64(packing.ctypes.data), packs.copy()  # positions, rows and segments
    first(packing, requests, positions, packs[0, 0], packs[0, 1])
    before, last = np.empty((requests, states.shape[1]), np.float32), np.empty(requests, np.int64)
    last[:] = carray(pointer_to_integers(wanted), (requests,))
    pack[0, 0], pack[0, 1] = line + 8 * requests, line + 16 * requests
    for step in range(steps):
        begin = step * requests
        for r in range(requests):
            weigh(logits[begin + r], warpings[r], masses)
            token = draw(masses, numbers[step, r])
            token = proposed[token] if len(proposed) else token
            tokens[step, r] = token
            over[r] |= token in ends
        if step + 1 == steps or over.all():
            return step + 1
        begin += requests
        answers[0] = logits[begin:].ctypes.data
        if len(states):
            for r in range(requests):
                before[r] = states[last[r]]
                last[r] = n + step * requests + r
            answers[1], answers[2] = states[last[0] :].ctypes.data, before.ctypes.data
        carry_out(
            lines, reals, work, answers, np.int64(tokens[step].ctypes.data), line,
            np.int64(every.ctypes.data), requests, requests, caches, pack, team,
        )  # fmt: skip
        note(logits[begin : begin + requests], tops, begin)
        for r in range(requests):
            packing[r] += 1
            packing[requests + r] += 1
            packing[2 * requests + 6 * r + 3] += 1
    return steps


@njit
def alike(places, numbers):
    """Whether the bytes at places, (address, count) each, are these, one after another."""
    begin, different = 0, np.uint8(0)
    for i in range(len(places)):
        count = places[i, 1]
        line = carray(pointer_to_bytes(places[i, 0]), (count,))
        for j in range(count):
            different |= line[j] ^ numbers[begin + j]
        begin += count
    return different == 0


class Team:
    """Threads that help whoever carries out a pass.

    Between two tasks of a pass they wait in a loop, because another one comes within microseconds;
    when none has come for a while, they sleep. A helper that loses its core to another program with
    a part in its hands keeps the caller waiting. Then the caller goes on alone for one pass, and
    for twice as many each time that it happens again soon: OpenMP's threads keep a core busy only
    for a moment after a product, whereas another program stays.

    Args:
        helpers: their number
        serve: what they do while there is work: a function of the address of the team's words and
            of a thread's number that returns after a while without
    """

    def __init__(self, helpers: int, serve: Any):
        self._words = np.zeros((SIZE + LINE) // 8, np.int64)
        self.address = -(-self._words.ctypes.data // LINE) * LINE
        first = (self.address - self._words.ctypes.data) // 8
        self._awake, self._late, threads, turns = (
            self._words[first + at // 8 :][:1] for at in (AWAKE, LATE, THREADS, TURNS)
        )
        self._alone, self._rest = 0, RESTS[0]  # passes to make without helpers, now and next time
        self._bells: list[threading.Event] = []
        self._over = False
        self.busy = threading.Lock()
        turns[0] = TRIAL // PATIENCE
        began = time.perf_counter()
        serve(self.address, 0)
        turns[0] = max(1, int(TRIAL * 1e-3 / max(time.perf_counter() - began, 1e-9)))
        for thread in range(1, 1 + helpers):
            bell = threading.Event()
            work = (bell, serve, thread)
            try:
                threading.Thread(target=self._help, args=work, name="decoders", daemon=True).start()
            except RuntimeError:  # there may be no more threads
                break
            self._bells.append(bell)
        threads[0] = 1 + len(self._bells)
        atexit.register(self._end)

    def _help(self, bell: threading.Event, serve: Any, thread: int) -> None:
        while True:
            bell.wait()
            bell.clear()
            if self._over:
                return
            serve(self.address, thread)

    def _end(self) -> None:
        """Wait until no helper is in compiled code, which goes when Python ends."""
        self._over = True
        end = time.monotonic() + AT_EXIT
        while self._awake[0] and time.monotonic() < end:
            time.sleep(0.001)

    def ready(self) -> bool:
        """Whether helpers should help with a pass; then they are awake, or wake up."""
        if self._late[0]:
            self._late[0] = 0
            self._alone, self._rest = int(self._rest), min(2 * self._rest, RESTS[1])
        if self._alone:
            self._alone -= 1
            return False
        self._rest = max((1 - FORGOTTEN) * self._rest, RESTS[0])
        if self._awake[0] < len(self._bells):
            for bell in self._bells:
                bell.set()
        return bool(self._bells)


_team = lru_cache(maxsize=None)(Team)
if hasattr(os, "register_at_fork"):  # a child has none of its parent's threads
    os.register_at_fork(after_in_child=_team.cache_clear)


def shared(function: Callable, serve: Any) -> Callable:
    """A kernel that takes a team's address last, without that argument.

    The team is the one for torch's number of threads; the address is 0 if nobody helps.
    """

    def run(*arguments: Any) -> Any:
        helpers = min(torch.get_num_threads(), LARGEST) - 1
        team = _team(helpers, serve) if helpers else None
        if team is None or not team.busy.acquire(blocking=False):
            return function(*arguments, 0)
        try:
            return function(*arguments, team.address if team.ready() else 0)
        finally:
            team.busy.release()

    return run


def compiled(**options: Any) -> tuple[Any, ...]:
    """Compile, or read from numba's cache, the functions that Python calls.

    Args:
        options: those of njit

    Returns:
        `run`, which carries out a program, `passes`, which also reads the logits and draws chains,
        `multiply`, a product alone, `serve`, which helps others, `alike`, and the four of
        `decoders.engine.kernels.select`
    """
    place, real, single = types.int64, types.float64, types.float32
    whole, lines = (types.Array(types.int64, n, "C") for n in (1, 2))
    numbers, table = (types.Array(types.float64, n, "C") for n in (1, 2))
    row, rows = (types.Array(types.float32, n, "C") for n in (1, 2))
    functions: dict[Any, Any] = {
        carry_out: types.void(
            lines, table, place, whole, *[place] * 5, lines, lines, place
        ),
        passes_and_draws: types.int64(
            lines, table, *[place] * 6, rows, types.Tuple((rows, lines, numbers)), lines, lines,
            lines, table, table, whole, rows, rows, whole, place,
        ),
        product: types.void(*[place] * 8, single, place),
        help_others: types.void(place, place),
        alike: types.boolean(lines, types.uint8[::1]),
        find: types.void(rows, rows, lines),
        spread: types.void(rows, numbers, real, numbers),
        heat: types.float64(row, real, row),
        nucleus: types.void(row, row, *[real] * 3),
    }  # fmt: skip
    return tuple(
        njit(signature, nogil=True, error_model="numpy", **options)(each.py_func)
        for each, signature in functions.items()
    )
