"""The compiled kernels, if this machine can have them (kernels), and threads that share (Team).

Between two tasks of a pass helpers wait in a loop, because another one comes within microseconds;
when none has come for a while, they sleep. A helper that loses its core to another program with a
part in its hands keeps the caller waiting. Then the caller goes on alone for one pass, and for
twice as many each time that it happens again soon: OpenMP's threads keep a core busy only for a
moment after a product, whereas another program stays.
"""

import atexit
import logging
import os
import threading
import time
import zlib
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from decoders.devices import device_of
from decoders.distribution import PLAIN, Scan
from decoders.engine.kernels import AWAKE, LATE, PATIENCE, SIZE, THREADS, TURNS
from decoders.errors import first_line
from decoders.shapes import Logits

LINE = 128  # bytes
MOST = 8  # threads: more would wait for each other; only two were measured
TRIAL = 10_000  # turns of a waiting loop, to see what they take
AT_EXIT = 0.1  # seconds
RESTS = 1.0, 1024.0  # passes without helpers, the least and the most
FORGOTTEN = 1 / 16  # of the rest, by a pass in which no helper was late


class Team:
    """Threads that help whoever carries out a pass.

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
        helpers = min(torch.get_num_threads(), MOST) - 1
        team = _team(helpers, serve) if helpers else None
        if team is None or not team.busy.acquire(blocking=False):
            return function(*arguments, 0)
        try:
            return function(*arguments, team.address if team.ready() else 0)
        finally:
            team.busy.release()

    return run


NEEDED = {"x86_64": ("avx2", "fma", "f16c"), "aarch64": (), "arm64": ()}


class Missing(Exception):
    """Kernels cannot be had, for the reason that is its text."""


@lru_cache(maxsize=1)
def kernels() -> Any:
    """The kernels, compiled or read from numba's cache at the first call; None without them.

    Then one warning says why. They are kept in the user's cache folder (or in NUMBA_CACHE_DIR); if
    it is read-only, they are compiled in each process.
    """
    try:
        return _made()
    # numba may be missing or not fit numpy, and compilation may fail in any way.
    except Exception as error:
        logging.getLogger("decoders").warning(
            "Passes on this CPU take longer than they could: %s.", first_line(error)
        )
        return None


def scan_for(rows: Logits | np.ndarray) -> Scan:
    """What looks through these rows: kernels if they can, whoever made the rows; else numpy."""
    if isinstance(rows, np.ndarray):
        fits = rows.dtype == np.float32 and rows.flags.c_contiguous
    else:
        on_host = device_of(rows.device).on_host
        fits = rows.dtype == torch.float32 and on_host and rows.is_contiguous()
    return entries.scan if fits and (entries := kernels()) else PLAIN


def _made() -> SimpleNamespace:
    try:
        from llvmlite import binding
    except ImportError:
        raise Missing("numba is not installed (pip install numba)") from None
    processor = binding.get_process_triple().split("-")[0]
    able = binding.get_host_cpu_features()
    if processor not in NEEDED or not all(able.get(name) for name in NEEDED[processor]):
        raise Missing("the kernels are for AVX2 and for Arm")
    import numba
    from platformdirs import user_cache_dir

    from decoders.engine.kernels import program, select, tiles

    sources = [f for f in files("decoders.engine.kernels").iterdir() if f.name.endswith(".py")]
    stamp = zlib.crc32(b"".join(f.read_bytes() for f in sorted(sources, key=lambda f: f.name)))
    # Beside the source they would stay when the package is uninstalled.
    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = before or user_cache_dir("decoding-workbench")
    try:
        functions = program.compiled(stamp, cache=True)
    except (RuntimeError, OSError):  # the folder is not writable
        functions = program.compiled(stamp)
    finally:
        config.CACHE_DIR = before
    run, passes, multiply, serve, alike, *scans = functions
    return SimpleNamespace(
        run=shared(run, serve),
        passes=shared(passes, serve),
        multiply=shared(multiply, serve),
        in_blocks=tiles.in_blocks,
        alike=alike,
        scan=select.CompiledScan(*scans),
    )
