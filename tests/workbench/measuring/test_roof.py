"""What the machine can do at most is measured, and plausible."""

import time

import pytest
import torch

from workbench.measuring import roof


def test_the_figures_are_positive_and_quick_to_have():
    began = time.monotonic()
    found = roof.measured(torch.device("cpu"), torch.float32)
    assert time.monotonic() - began < 5
    # From an old phone to a large server.
    assert 1e8 < found["bytes_per_second"] < 1e13
    assert 1e8 < found["operations_per_second"] < 1e15


def test_the_quickest_run_counts():
    waits = iter([0.03, 0.01, *[0.02] * roof.REPEATS])
    found = roof._seconds(lambda: time.sleep(next(waits)), lambda: None)
    assert found == pytest.approx(0.01, abs=0.005)
