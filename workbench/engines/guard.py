"""Runs a command that ends with whoever started it (guarded).

A measurement may be killed at any moment, and its server would go on and hold the machine. This
process stands between them: its input is a pipe from the measurement, which ends with it.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

PATIENCE = 20.0  # seconds between asking a server to end and ending it
PR_SET_PDEATHSIG = 1  # of Linux's <sys/prctl.h>
READ, SAID = 8192, 200  # bytes at a log's end, and characters of its last line


@contextmanager
def guarded(
    words: Sequence[str],
    environ: Mapping[str, str],
    log: IO[bytes],
    folder: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A command that ends with the context, or with this process.

    Args:
        words: the command
        environ: its environment
        log: gets what it writes
        folder: where it runs; by default where this process does

    Yields:
        the process that guards it, with the same exit status
    """
    process = subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__).resolve()), *words], cwd=folder,
        env=dict(environ), stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait()


def last_words(log: IO[bytes]) -> str:
    """The last line that a command wrote, what can be printed of it."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - READ))
    lines = [line.strip() for line in log.read().decode(errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "none")
    return "".join(c if c.isprintable() else " " for c in last[-SAID:]).rstrip(".")


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a session, and whatever it has started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)


def _not_alone() -> None:
    """Linux ends this process if the guard is killed: Ray kills whatever an actor has started."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def main(words: list[str]) -> int:
    """Run the command; the exit status is its own, or 127 if there is no such program."""
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_not_alone
        )
    except OSError as error:
        print(f"{words[0]}: {error.strerror}", file=sys.stderr)
        return 127

    def watch() -> None:
        while os.read(0, 4096):
            pass
        end(process)

    threading.Thread(target=watch, daemon=True).start()
    status = process.wait()
    end(process)  # what it has left behind
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
