"""Names of drivers, and whether one is still alive."""

import os
import platform
import time
from pathlib import Path

# A driver whose last beat is older than this counts as gone.
STALE_SECONDS = 60.0


def new_owner(number: int = 0) -> str:
    """A unique name for a driver of this process."""
    pid = os.getpid()
    return f"{platform.node()}|{pid}|{started_at(pid)}|{number}-{time.monotonic_ns()}"


def started_at(pid: int) -> str:
    """When a process of this machine began, "" if there is none: process ids are reused."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return "" if state in "ZX" else fields[18]
    except OSError:
        pass
    try:  # without /proc, only its existence is known
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return ""
    return "?"


def alive(owner: str, beat: float, now: float) -> bool:
    """Whether an owner is alive: its last beat is recent, and a process of this machine still runs.

    Args:
        owner: its name, from `new_owner`
        beat: the time of its last beat, in seconds
        now: the present time, in seconds
    """
    host, pid, started, _ = owner.split("|")
    if now - beat > STALE_SECONDS:
        return False
    return host != platform.node() or started_at(int(pid)) == started
