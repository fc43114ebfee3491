"""Python's garbage, and when it is looked for."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def light_heap() -> Iterator[None]:
    """Let Python's collector look only at objects made in here.

    Walking all objects of the process takes as long as some laps, and a seventh of the time in
    which the embedded pair loads. Nothing is collected before, which would take as long: garbage is
    frozen with the rest, and collected afterwards. A heap that somebody has frozen stays so.
    """
    own = not gc.get_freeze_count()
    if own:
        gc.freeze()
    try:
        yield
    finally:
        if own:
            gc.unfreeze()
