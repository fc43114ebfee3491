"""Who is at work on an experiment: names of drivers, and whether one is alive."""

import os
import platform
import time
from pathlib import Path

STALE_SECONDS = 60.0  # an owner of another machine that has not been heard of for so long is taken to be gone


def new_owner(number: int = 0) -> str:
    """A name for a driver of this process that no other has, now or later."""
    return f"{platform.node()}|{os.getpid()}|{started_at(os.getpid())}|{number}-{time.monotonic_ns()}"


def started_at(pid: int) -> str:
    """When a process of this machine began, "" if there is none: ids of processes come again."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return "" if state in "ZX" else fields[18]
    except OSError:
        pass
    try:  # no /proc: only whether there is one
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return ""
    return "?"


def alive(owner: str, beat: float, now: float) -> bool:
    """An owner of this machine is alive as long as its process is and was heard of lately, one of another machine if it was heard of."""
    host, pid, started, _ = owner.split("|")
    if now - beat > STALE_SECONDS:
        return False
    return host != platform.node() or started_at(int(pid)) == started
