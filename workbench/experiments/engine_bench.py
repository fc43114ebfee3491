"""A worker's bench for engines: it keeps a server up, and puts load on it (EngineBench)."""

import os
import platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from threading import Event
from typing import Any, overload

import torch

from decoders import InputError, default_device
from workbench.engines.addresses import Engine
from workbench.engines.client import Client
from workbench.engines.generators import generator
from workbench.engines.load import Generator, Own, Stopped
from workbench.engines.probe import PROMPT, connect, version
from workbench.engines.record import Query
from workbench.engines.starters import Starter
from workbench.engines.starting import started
from workbench.experiments.block import digest
from workbench.experiments.engine_cells import EngineCell, EngineUnit, Place
from workbench.experiments.engine_rows import result, untold
from workbench.experiments.rows import NEXT_TIMING, Row, failed
from workbench.measuring.asking import hidden
from workbench.measuring.gauges import NoGauge
from workbench.measuring.meter import Meter, open_meter
from workbench.runs.record import Result
from workbench.runs.trace import Energy, Server

TOGETHER = "The server and the generator of load shared one machine."
OUTSIDE = "not measured: the server runs on another machine"
UNDECLARED = (
    "not measured: whether the server uses a GPU is not known (`gpus` in the file of engines says "
    "it of those that are started)"
)
SEVERAL = "not measured: the server uses several GPUs"
TRIED_TOKENS = 8
UNTIMED = "not measured: the generator does not say when its requests begin"
Up = tuple[Place, int | None, tuple[str, ...], str]


class EngineBench:
    """Runs units on servers, one server at a time, in the thread that calls it.

    Args:
        environ: of started servers and the generator of load, and where keys are

    Attributes:
        stopped: set to end the load at work
    """

    def __init__(self, environ: Mapping[str, str] = os.environ):
        self._environ, self._open = environ, ExitStack()
        self._up: Up | None = None
        self._client: Client | None = None
        self._version: str | None = None
        self._faults: dict[Up, str] = {}  # of servers that cannot be started
        self.stopped = Event()

    @cached_property
    def _usual(self) -> Generator:
        return generator(self._environ)

    def _tried(self, client: Client) -> str:
        """The name of the generator for a server: our own if the usual one counts no tokens of it.

        Raises:
            InputError: if the generator fails, or if even ours counts no tokens
        """
        query = Query(PROMPT, TRIED_TOKENS)
        for each in (self._usual, Own()):
            if each.unfit(client):
                continue
            load = each.make(client, [query], 1, stopped=self.stopped.is_set)
            if load.records[0].count is not None:
                return each.name
        raise untold(client.wire.engine.name)

    def _named(self, name: str) -> Generator:
        if name in (Own.name, self._usual.name):
            return Own() if name == Own.name else self._usual
        raise InputError(
            f"The load is made by {name}, but this worker has {self._usual.name}; install it, or "
            "set WORKBENCH_LOAD to `own` everywhere."
        )

    def facts(
        self, place: Place, length: int | None, flags: Sequence[str], device: str = "auto"
    ) -> dict[str, Any]:
        """The server's "identity", which cells' ids contain, and its "environment", for reports.

        Args:
            place: the server
            length: number of draft tokens to start it with
            flags: more words of its command
            device: where it runs

        Raises:
            InputError: if it cannot be reached or started
            Stopped: if it was stopped
        """
        self.stopped.clear()
        try:
            client = self._of(place, length, tuple(flags), device)
            made = self._tried(client)
        except InputError as error:
            raise InputError(_shown(str(error), place)) from None
        told = {
            "kind": client.dialect.kind,
            "model": _shown(client.model, place),
            "version": self._version,
            "generator": made,
        }
        own = {}
        if not isinstance(place, Engine):
            kind = "cpu" if place.gpus == 0 else default_device().type
            own = {"command": digest([place.start, place.draft]), "device": kind}
        where = {"name": place.name, "flags": shlex.join(flags), "host": platform.node()}
        return {
            "identity": {**told, **own},
            "environment": {**told, **where, "started": not isinstance(place, Engine)},
        }

    def run(self, unit: EngineUnit) -> list[Row]:
        """A row for each cell; a failure becomes a row with its error.

        Raises:
            Stopped: if it was stopped; then there is no row
        """
        self.stopped.clear()
        # In turns forward and backward, so that a machine that gets slower or faster favours no
        # load.
        step = -1 if (unit.item // NEXT_TIMING) % 2 else 1
        try:
            rows = [self._row(unit, i) for i in range(len(unit.cells))[::step]]
        except Stopped:
            self.close()  # the server may still be answering
            raise
        return rows[::step]

    def close(self) -> None:
        """End the server that was started, and the connection."""
        self._up = self._client = None
        self._open.close()

    def _row(self, unit: EngineUnit, i: int) -> Row:
        cell, host = unit.cells[i], platform.node()
        try:
            found = self._measured(unit, cell)
        except InputError as error:
            self.close()  # it may be dead; the next cell gets it anew
            asked, why = cell.to_json(), _shown(str(error), unit.place)
            return failed(unit.ids[i], unit.item, asked, unit.prompts, why, host)
        return Row(unit.ids[i], unit.item, found, host)

    def _measured(self, unit: EngineUnit, cell: EngineCell) -> Result:
        place, by = unit.place, self._named(unit.generator)
        client = self._of(place, cell.draft_length, cell.flags, unit.device)
        queries = [
            Query(text, cell.max_new_tokens, cell.temperature, cell.seed + number)
            for number, text in zip(unit.prompts, unit.texts, strict=True)
        ]
        meter, windows = self._meter(unit), list[Energy]()

        @contextmanager
        def window() -> Iterator[None]:
            with meter.window() as each:
                yield
            windows.append(each.energy)

        load = by.make(client, queries, cell.concurrency, window, self.stopped.is_set)
        energy = windows[0] if windows else Energy(None, UNTIMED)
        server = Server(client.dialect.kind, self._version, _shown(client.model, place))
        unfit = self._usual.unfit(client)
        says = filter(None, (by.says, unfit, TOGETHER if _here(place) else ""))
        flag = {} if isinstance(place, Engine) else _flag(place, cell)
        found = result(cell, unit.prompts, load, energy, server)
        return replace(found, remarks=[*says], settings=flag)

    def _of(self, place: Place, length: int | None, flags: tuple[str, ...], device: str) -> Client:
        """A client of the server, which is started if it is not up."""
        wanted = (place, length, flags, device)
        if self._client is not None and self._up == wanted:
            return self._client
        self.close()
        if wanted in self._faults:
            raise InputError(self._faults[wanted])
        if isinstance(place, Engine):
            client = connect(place, environ=self._environ)
            self._open.callback(client.wire.close)
        else:
            environ = {**self._environ, **_visible(device)}
            up = started(place, length or 0, flags, environ, stopped=self.stopped.is_set)
            try:
                client = self._open.enter_context(up)
            except InputError as error:
                self._faults[wanted] = str(error)
                raise
        self._up, self._client = wanted, client
        self._version = _shown(version(client), place)
        return client

    def _meter(self, unit: EngineUnit) -> Meter:
        """The meter of what the server runs on, as far as it is known."""
        place, there = unit.place, torch.cuda.device_count()
        if not _here(place):
            return Meter(NoGauge(OUTSIDE))
        declared = None if isinstance(place, Engine) else place.gpus
        if declared == 0 or not there:
            return open_meter("cpu")
        if declared is None:
            return Meter(NoGauge(UNDECLARED))
        if declared > 1:
            return Meter(NoGauge(SEVERAL))
        if unit.device == "auto" and there > 1:
            return Meter(NoGauge(f"not measured: which of {there} GPUs it uses is not known"))
        return open_meter("cuda" if unit.device == "auto" else unit.device)


@overload
def _shown(words: str, place: Place) -> str: ...
@overload
def _shown(words: str | None, place: Place) -> str | None: ...
def _shown(words: str | None, place: Place) -> str | None:
    """A server's words, without the address of one that runs."""
    return hidden(words, place) if words and isinstance(place, Engine) else words


def _here(place: Place) -> bool:
    """Whether a server runs on this machine."""
    return not isinstance(place, Engine) or place.here


def _visible(device: str) -> dict[str, str]:
    """The variable that lets a server see one GPU only."""
    kind, _, number = device.partition(":")
    return {"CUDA_VISIBLE_DEVICES": number} if kind == "cuda" and number else {}


def _flag(place: Starter, cell: EngineCell) -> dict[str, Any]:
    words = place.drafting(cell.draft_length or 0)
    return {"flag": shlex.join(words)} if words else {}
