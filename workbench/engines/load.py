"""Load on a server: many requests at once, made by a generator (Load, Generator, Own)."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import count
from threading import Event, Thread
from typing import Any, Protocol

from decoders.errors import InputError
from workbench.engines import counters
from workbench.engines.client import Client
from workbench.engines.record import Query, Record, Speculation

LISTEN_SECONDS = 0.2  # how soon Stop is heard


class Stopped(Exception):
    """Somebody has stopped the load, which counts for nothing."""


def never() -> bool:
    """That nobody stops a load."""
    return False


@dataclass(frozen=True)
class Load:
    """What came of some requests.

    Attributes:
        records: the answers, in the order of the requests
        seconds: from the first request to the end of the last answer
        speculation: what became of all draft tokens together; None if it is not told
    """

    records: tuple[Record, ...]
    seconds: float
    speculation: Speculation | None = None


class Generator(Protocol):
    """Makes load.

    Attributes:
        name: its name and version, for reports
        says: a sentence about it for readers of its figures; "" if there is nothing to say
    """

    @property
    def name(self) -> str: ...

    @property
    def says(self) -> str: ...

    def unfit(self, client: Client) -> str:
        """Why it makes no load for a server, as a sentence; "" if it does."""
        ...

    def make(
        self,
        client: Client,
        queries: Sequence[Query],
        at_once: int,
        window: Callable[[], AbstractContextManager[Any]] = nullcontext,
        stopped: Callable[[], bool] = never,
    ) -> Load:
        """Send all requests, as many at once as said: each that ends makes room for the next.

        As many requests come first as are sent at once, and count for nothing.

        Args:
            client: the server
            queries: the requests, which differ in their prompts and seeds alone
            at_once: the number of requests at once
            window: makes a context that is open while the counted requests are; a generator that
                does not know when that is makes none
            stopped: whether to end

        Raises:
            InputError: if a request fails
            Stopped: if it was stopped
        """
        ...


class Own:
    """The generator that comes along: a thread for each request that is open."""

    name = "this workbench"
    says = (
        "The load was made here, by threads of one process: at high concurrency the process may be "
        "slower than the server."
    )

    def unfit(self, client: Client) -> str:
        """As of `Generator`."""
        return ""

    def make(
        self,
        client: Client,
        queries: Sequence[Query],
        at_once: int,
        window: Callable[[], AbstractContextManager[Any]] = nullcontext,
        stopped: Callable[[], bool] = never,
    ) -> Load:
        """As of `Generator`."""
        _ask(client, queries[:at_once], at_once, stopped)
        before = client.counted()
        with window():
            began = time.monotonic()
            records = _ask(client, queries, at_once, stopped)
            seconds = time.monotonic() - began
        return Load(records, seconds, together(records, before, client.counted()))


def _ask(
    client: Client, queries: Sequence[Query], at_once: int, stopped: Callable[[], bool]
) -> tuple[Record, ...]:
    """The answers; after the first failure no more is asked, and none is read on."""
    numbers, over = count(), Event()
    found: dict[int, Record] = {}
    faults: list[BaseException] = []

    def check(*_: object) -> None:
        if over.is_set():
            raise InputError("Stopped.")

    def work() -> None:
        try:
            while not over.is_set() and (number := next(numbers)) < len(queries):
                record = client.ask(queries[number], heard=check)
                if record.note:
                    raise InputError(record.note)
                found[number] = record
        except BaseException as fault:
            faults.append(fault)
            over.set()

    # A server may be silent for long: whoever is stopped does not wait for these threads.
    threads = [Thread(target=work, name="load", daemon=True) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(LISTEN_SECONDS)
            if stopped():
                over.set()
                raise Stopped
    for fault in faults:
        raise fault
    return tuple(found[number] for number in range(len(queries)))


def together(
    records: Sequence[Record], before: counters.Counts | None, after: counters.Counts | None
) -> Speculation | None:
    """What became of the draft tokens of all requests.

    Args:
        records: the answers
        before: the server's counters before the first request, None if it has none
        after: likewise after the last
    """
    told = [r.speculation for r in records if r.speculation is not None]
    whole = len(told) == len(records)
    if whole and all(each.steps is not None for each in told):
        return _sum(told, sum(each.steps or 0 for each in told))
    return counters.between(before, after) or (_sum(told, None) if whole else None)


def _sum(told: Sequence[Speculation], steps: int | None) -> Speculation:
    return Speculation(sum(s.drafted for s in told), sum(s.accepted for s in told), steps)
