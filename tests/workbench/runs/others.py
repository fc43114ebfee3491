"""What other processes do with a file of runs. They import this alone: the page takes seconds."""

import os
import resource
import signal
import sqlite3
import time
from collections.abc import Callable

from decoders import InputError
from workbench.runs.record import Run
from workbench.runs.store import RunStore


def add_when(path, barrier, run):
    barrier.wait()
    store = RunStore(path)
    for _ in range(5):
        store.add(run)


def die_in_mid_write(path, run, ready):
    store = RunStore(path)
    store.save(run)
    db = sqlite3.connect(path)
    db.execute("DELETE FROM runs")
    columns = "id, created, prompt, decoders, models, json"
    db.execute(f"INSERT INTO runs ({columns}) VALUES ('dd', '', '', '[]', '', 'half a ru')")
    ready.set()
    time.sleep(60)


def refusal(act: Callable[[], object]) -> None:
    """The exit status says whether there was one sentence."""
    try:
        act()
    except InputError as refusal:
        said = str(refusal)
        os._exit(0 if "set WORKBENCH_DATA to another folder" in said and "\n" not in said else 1)
    except BaseException:
        os._exit(2)
    os._exit(3)


def as_nobody(act: Callable[[], object]) -> None:
    if os.getuid() == 0:
        os.setegid(65534)
        os.seteuid(65534)
    refusal(act)


def on_a_full_disk(store: RunStore, run: Run) -> None:
    """No file may grow any more, which is what a full disk looks like."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = store.path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    refusal(lambda: store.save(run))
