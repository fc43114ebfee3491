"""While a pair is checked or measured, Python does not walk all objects of the process."""

import gc

from decoders.process import light_heap
from tests.models import build_pair


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


def test_a_loaded_pair_leaves_the_heap_as_it_was():
    build_pair()
    assert gc.get_freeze_count() == 0
