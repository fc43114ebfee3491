"""Arenas between two runs (Idle)."""

from threading import Lock

from decoders.engine.memory.arenas import Arenas
from decoders.engine.memory.rows import CacheRows


class Idle:
    """Arenas that no request uses, kept for the next run. Runs may come from several threads.

    Args:
        most: the most bytes that all of them together may have, or None for no limit
    """

    def __init__(self, most: int | None):
        self.most, self._arenas, self._lock = most, list[Arenas](), Lock()

    @property
    def arenas(self) -> tuple[Arenas, ...]:
        """Those that wait, the oldest first."""
        return tuple(self._arenas)

    def take(self, kind: type[CacheRows]) -> Arenas | None:
        """Take arenas with this kind of rows, if there are any."""
        with self._lock:
            for place, arenas in enumerate(self._arenas):
                if arenas.kind is kind:
                    return self._arenas.pop(place)
        return None

    def keep(self, arenas: Arenas) -> bool:
        """Keep arenas, perhaps instead of older ones; return whether they were kept."""
        with self._lock:
            if self.most is not None:
                if arenas.size > self.most:
                    return False
                while sum(a.size for a in (*self._arenas, arenas)) > self.most:
                    self._arenas.pop(0)
            self._arenas.append(arenas)
            return True
