"""Files beside the packages, the garbage of a process, and its threads."""

import gc

import torch

from decoders.process import assets, light_heap, one_thread
from tests.models import build_pair


def test_in_a_wheel_they_lie_inside_of_each(tmp_path):
    (tmp_path / "assets").mkdir()  # a stranger's
    (tmp_path / "decoders" / "_assets").mkdir(parents=True)
    assert assets(tmp_path / "decoders" / "assets.py") == tmp_path / "decoders" / "_assets"


def test_what_was_there_is_not_walked_and_is_again_afterwards():
    with light_heap():
        assert gc.get_freeze_count() > 0
        with light_heap():
            pass
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_a_heap_that_the_caller_has_frozen_stays_so():
    """Servers freeze theirs before they fork."""
    gc.freeze()
    try:
        build_pair()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_torch_computes_alone_for_a_while():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
