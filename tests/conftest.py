"""Every drawn case is drawn the same on each run, no test is timed out on a busy machine, and what takes longest begins first.

PASSES=plain runs everything with passes that are not recorded: python -m pytest tests/decoders --ignore tests/decoders/engine/test_replay.py
"""

import os

import torch
from hypothesis import settings

from decoders import ModelPair, load_pair
from decoders.engine.model import PackedModel
from workbench.measuring import device

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("repeatable")
torch.set_num_threads(1)
device.PATIENCE_SECONDS = 0.0  # beside other tests the clock would wait for a steadiness that does not come

if passes := os.environ.get("PASSES"):
    for call in (ModelPair.__init__, load_pair):
        call.__kwdefaults__["passes"] = passes
    PackedModel.__init__.__defaults__ = (*PackedModel.__init__.__defaults__[:-1], passes)

LONGEST = ("tests/workbench/experiments/test_cluster.py", "tests/browser/")


def pytest_collection_modifyitems(items):
    """Two processes take whole files in turn: a long one that came last would leave the other without work for minutes."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
