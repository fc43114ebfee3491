"""Python's heap during a measurement: a collector that has little to walk."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def light_heap() -> Iterator[None]:
    """Let Python's collector look only at objects made in here.

    Walking all objects of the process takes as long as some laps. Nothing is collected before,
    which would take as long: garbage is frozen with the rest, and collected afterwards.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
