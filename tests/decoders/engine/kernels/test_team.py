"""Threads that share a pass: the same bits as one thread alone, whoever helps and whenever."""

import os
import subprocess
import sys
import time

import pytest
import torch

import decoders

pytest.importorskip("numba")

from decoders.engine.kernels.loading import kernels


@pytest.fixture(scope="module")
def pair():
    return decoders.load_pair()


@pytest.fixture
def threads():
    """Sets torch's number of threads; afterwards it is as before."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def product(x, weight, blocks):
    out = torch.full((len(x), len(weight)), torch.nan)
    kernels().multiply(
        x.data_ptr(), len(x), blocks.data_ptr(), x.shape[1], len(weight), out.data_ptr(), 0, 1, 0.5
    )
    return out


def draw(rows, size, width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(width, size, generator=generator).half()
    return torch.randn(rows, size, generator=generator), weight, kernels().in_blocks(weight)


@pytest.mark.parametrize("count", [2, 9])  # more than there are cores, and than are taken
@pytest.mark.parametrize(("rows", "size", "width"), [(1, 300, 1000), (5, 512, 513), (40, 64, 128)])
def test_a_product_has_the_same_bits_with_any_number_of_threads(threads, count, rows, size, width):
    case = draw(rows, size, width)
    threads(1)
    alone = product(*case)
    exact = 0.5 * case[0].double() @ case[1].double().T
    torch.testing.assert_close(alone.double(), exact, rtol=1e-4, atol=1e-3)
    threads(count)
    for _ in range(100):
        assert torch.equal(product(*case), alone)


@pytest.mark.parametrize("method", ["speculative", "dsbd"])
def test_decoders_give_the_same_tokens_with_two_threads(pair, threads, method):
    options = {"max_new_tokens": 24, "temperature": 0.8, "seed": 3, "ignore_eos": True}
    found = []
    for count in (1, 2, 3):
        threads(count)
        results = decoders.generate(pair, ["Once upon a time", "The dog"], method, **options)
        found.append([(result.tokens, result.metrics.target_calls) for result in results])
    assert found[0] == found[1] == found[2]


ENDS = """
import torch
from decoders.engine.kernels.loading import kernels
torch.set_num_threads(2)
weight = kernels().in_blocks(torch.ones(9000, 300).half())
x, out = torch.ones(4, 300), torch.empty(4, 9000)
kernels().multiply(x.data_ptr(), 4, weight.data_ptr(), 300, 9000, out.data_ptr(), 0, 1, 1.0)
assert (out == 300).all()
"""


@pytest.mark.slow
def test_a_process_ends_while_its_helpers_are_awake():
    ran = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, timeout=120)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_goes_on_without_helpers(threads):
    case = draw(2, 256, 700)
    threads(2)
    expected = product(*case)
    child = os.fork()
    if not child:
        os._exit(0 if all(torch.equal(product(*case), expected) for _ in range(50)) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_helpers_sleep_when_there_is_no_work(threads):
    """They would keep a core busy for as long as the process lives."""
    threads(2)
    case = draw(2, 256, 700)
    for _ in range(20):
        product(*case)
    time.sleep(0.1)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.2
