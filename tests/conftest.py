"""Drawn cases are the same in each run, and no test times out on a busy machine.

Tests that wait stand between those that compute."""

import fcntl
import gc
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub.utils import _http
from hypothesis import Phase, settings

from decoders.engine.kernels.loading import kernels
from decoders.engine.loading import load
from tests.models import save_small_pair
from tests.pairwise import EVERYWHERE
from tests.reports import pytest_report_to_serializable  # noqa: F401 - a hook
from workbench.measuring import session

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=40)
# For `tests.mutants`, to which any failing example is as good as the smallest.
settings.register_profile(
    "first", settings.get_profile("repeatable"), phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("repeatable")
torch.set_num_threads(1)
# Modules and tests are a million objects: looking through all of them took a ninth of the time.
gc.set_threshold(10_000, 20, 20)
# Beside other tests the clock would wait for a steadiness that does not come.
session.PATIENCE_SECONDS = 0.0
# Page and terminal begin with SmolLM2 where its weights are, and these tests with a smaller pair.
os.environ.setdefault("WORKBENCH_PAIR", "Llama-Stories (embedded)")
os.environ.setdefault("WORKBENCH_THREADS", "1")  # else they are measured
# A hub that does not answer is asked five times, 23 seconds in all.
_http.time = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, 0.05)))


COMPILING = "TESTS_COMPILING"  # names the file that is locked while the kernels are compiled


def pytest_configure(config):
    """In a new clone the kernels are compiled once, while other processes import and collect.

    Each process compiled them for itself, which takes half a minute of a core."""
    if not getattr(config.option, "numprocesses", None) or hasattr(config, "workerinput"):
        return
    lock, os.environ[COMPILING] = tempfile.mkstemp()
    fcntl.flock(lock, fcntl.LOCK_EX)

    def compiled():
        kernels()
        os.unlink(os.environ[COMPILING])
        os.close(lock)

    threading.Thread(target=compiled).start()


def pytest_collection_finish(session):
    if hasattr(session.config, "workerinput"):
        with suppress(FileNotFoundError), open(os.environ[COMPILING]) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Iterator[None]:
    """For tests that read no text: a small pair in place of the embedded one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "EMBEDDED", save_small_pair(tmp_path_factory.mktemp("small")))
        yield


# These wait for other processes half of the time.
WAITING = ("tests/workbench/experiments/test_cluster.py", "tests/browser/")


def pytest_collection_modifyitems(items):
    """Puts files that wait between those that compute, so that no core is idle.

    A few processes take whole files in turn. None of the waiting files comes last, when the others
    would be out of work. Slow tests are for `make test-all`."""
    if not EVERYWHERE:
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: `make test-all` (EVERYWHERE=1)"))
    files = list(dict.fromkeys(item.path for item in items))
    waits = {item.path: item.nodeid.startswith(WAITING) for item in items}
    place = {}
    for kind, share in ((True, 0.8), (False, 1.0)):
        alike = [path for path in files if waits[path] == kind]
        place |= {path: share * i / len(alike) for i, path in enumerate(alike)}
    items.sort(key=lambda item: (place[item.path], not waits[item.path]))
