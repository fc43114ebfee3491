"""Threads that share the products of a pass (Team).

A team's words in memory say which product is open and how many of its blocks are taken. Whoever
takes a block, the caller or a helper, multiplies it: a helper that is late takes fewer, and which
thread multiplies a block changes no bit. Between two products helpers wait in a loop, because
another one comes within microseconds; when none has come for a while, they sleep.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from llvmlite import binding, ir
from numba import njit, types
from numba.extending import intrinsic

I64 = ir.IntType(64)
# Where words stand, in bytes, each on lines of the cache of its own: the open product's number
# times 2 ** 32 plus the blocks taken; blocks that helpers have multiplied; helpers that are awake;
# the arguments of the open product, their number of blocks first.
TICKET, DONE, AWAKE, ARGUMENTS = 0, 128, 256, 384
SIZE = 512
TAKEN = 2**32 - 1  # the blocks of a ticket
CLOSED = 2**31  # more than there are blocks
PATIENCE = 100_000  # turns of a waiting loop: two milliseconds or more


def word(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, I64.as_pointer())


@intrinsic
def look(context: Any, address: Any) -> Any:
    """The word at an address, and then whatever was written before it."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(word(builder, arguments[0]), "seq_cst", 8)

    return types.int64(types.int64), code


@intrinsic
def put(context: Any, address: Any, number: Any) -> Any:
    """Write a word, after whatever was written before and before whatever comes."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, number = arguments
        builder.atomic_rmw("xchg", word(builder, address), number, "seq_cst")
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), code


@intrinsic
def add(context: Any, address: Any, number: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, number = arguments
        builder.atomic_rmw("add", word(builder, address), number, "seq_cst")
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), code


@intrinsic
def swap(context: Any, address: Any, before: Any, after: Any) -> Any:
    """Write `after` if the word is `before`; return whether it was."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, before, after = arguments
        found = builder.cmpxchg(word(builder, address), before, after, "seq_cst", "seq_cst")
        return builder.extract_value(found, 1)

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


@njit
def publish(team, blocks, arguments):
    """Open a product of so many blocks."""
    number = (look(team + TICKET) >> 32) + 1
    # Who has seen the product before takes no block of this one with that one's arguments.
    put(team + TICKET, number << 32 | CLOSED)
    put(team + ARGUMENTS, blocks)
    for i in range(len(arguments)):
        put(team + ARGUMENTS + 8 + 8 * i, arguments[i])
    put(team + DONE, 0)
    put(team + TICKET, number << 32)


@njit
def take(team, blocks):
    """A block of the open product, for who has opened it; -1 if all are taken."""
    while True:
        ticket = look(team + TICKET)
        if ticket & TAKEN >= blocks:
            return -1
        if swap(team + TICKET, ticket, ticket + 1):
            return ticket & TAKEN


@njit
def finish(team, others):
    """Wait until helpers have multiplied the blocks that they took."""
    while look(team + DONE) < others:
        pause()


class Team:
    """Threads that help whoever carries out a pass.

    Args:
        helpers: their number
        serve: what they do while there is work: a function of the address of the team's words that
            returns after a while without
    """

    def __init__(self, helpers: int, serve: Any):
        self._words = np.zeros(SIZE // 8 + 16, np.int64)
        self.address = -(-self._words.ctypes.data // 128) * 128
        self._awake = self._words[(self.address - self._words.ctypes.data + AWAKE) // 8 :][:1]
        self._bells = [threading.Event() for _ in range(helpers)]
        self.busy = threading.Lock()
        for bell in self._bells:
            threading.Thread(
                target=self._help, args=(bell, serve), name="decoders", daemon=True
            ).start()

    def _help(self, bell: threading.Event, serve: Any) -> None:
        while True:
            bell.wait()
            bell.clear()
            serve(self.address)

    def wake(self) -> None:
        if self._awake[0] < len(self._bells):
            for bell in self._bells:
                bell.set()


_team = lru_cache(maxsize=None)(Team)


@contextmanager
def helped(serve: Any) -> Iterator[int]:
    """The address of a team for torch's number of threads; 0 if it is 1, or the team has work."""
    helpers = torch.get_num_threads() - 1
    team = _team(helpers, serve) if helpers else None
    if team is None or not team.busy.acquire(blocking=False):
        yield 0
        return
    try:
        team.wake()
        yield team.address
    finally:
        team.busy.release()
