"""Seconds of work: a clock that stands still while somebody draws."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StopClock:
    """Seconds that do not pass while it is stopped.

    Args:
        now: the clock behind it
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter):
        self._now, self._away = now, 0.0

    def __call__(self) -> float:
        return self._now() - self._away

    @contextmanager
    def stopped(self) -> Iterator[None]:
        began = self._now()
        try:
            yield
        finally:
            self._away += self._now() - began
