"""Seconds of work: clocks that stand still while somebody draws."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StopClock:
    """Seconds that do not pass while it is stopped."""

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


class LapClock:
    """A lap's clock, and beside it the time that the calling thread computes; both stand still together."""

    def __init__(self, now: Callable[[], float] = time.perf_counter, thread: Callable[[], float] = time.thread_time):
        self._wall, self._computed = StopClock(now), StopClock(thread)

    def __call__(self) -> float:
        return self._wall()

    def computed(self) -> float:
        """Seconds that this thread has computed while the clock ran."""
        return self._computed()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        with self._wall.stopped(), self._computed.stopped():
            yield
