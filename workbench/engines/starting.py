"""Starts a server for a measurement, and ends it (started)."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO

from decoders.errors import InputError
from workbench.engines.addresses import Engine
from workbench.engines.answers import Unready
from workbench.engines.client import Client
from workbench.engines.guard import guarded, last_words
from workbench.engines.load import Stopped, never
from workbench.engines.probe import PROMPT, connect
from workbench.engines.record import Query
from workbench.engines.starters import Starter
from workbench.engines.wire import Bounds, Wire

HOST = "127.0.0.1"
PATIENCE = 300.0  # seconds until a server must answer; vLLM compiles for one or two minutes
PAUSE = 0.2


@contextmanager
def started(
    starter: Starter,
    length: int = 0,
    flags: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    patience: float = PATIENCE,
    stopped: Callable[[], bool] = never,
) -> Iterator[Client]:
    """A client of a new server, which ends with the context or with this process.

    Args:
        starter: how it is started
        length: number of draft tokens; 0 drafts nothing
        flags: more words of its command
        environ: its environment
        patience: seconds until it must answer
        stopped: whether to wait no longer

    Raises:
        InputError: if it cannot be started, ends at once, does not answer in time, or serves
            another model
        Stopped: if it was stopped before it answered
    """
    port = free_port()
    words = starter.command(length, flags, port)
    engine = Engine(starter.name, f"http://{HOST}:{port}", None, starter.model, starter.kind)
    with TemporaryFile() as log, guarded(words, environ, log) as process:
        wait_for(process, engine, patience, log, stopped)
        client = connect(engine, environ=environ)
        try:
            yield client
        finally:
            client.wire.close()


def free_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def wait_for(
    process: subprocess.Popen[bytes],
    engine: Engine,
    patience: float,
    log: IO[bytes],
    stopped: Callable[[], bool] = never,
) -> None:
    """Return when the server lists its models and writes: some still load when they list them.

    Args:
        process: that of the server, or its guard
        engine: the server
        patience: seconds until it must answer
        log: what it writes
        stopped: whether to wait no longer

    Raises:
        InputError: if it ends before, does not answer in time, or serves another model
        Stopped: if it was stopped
    """
    wire, deadline = Wire(engine, Bounds(connect=1.0, silence=5.0)), time.monotonic() + patience
    try:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise wire.fault(f"ended before it answered; its last words: {last_words(log)}")
            if stopped():
                raise Stopped
            if _lists(wire) and _writes(engine):
                return
            time.sleep(PAUSE)
    finally:
        wire.close()
    raise wire.fault(
        f"did not answer within {patience:g} s of its start; its last words: {last_words(log)}"
    )


def _lists(wire: Wire) -> bool:
    try:
        wire.get("/v1/models")
    except InputError:
        return False
    return True


def _writes(engine: Engine) -> bool:
    """Whether a server does anything but say that it is not ready, if it is asked for a token."""
    client = connect(engine)
    try:
        client.ask(Query(PROMPT, 1))
    except Unready:
        return False
    except InputError:
        pass  # whoever asks next hears of it
    finally:
        client.wire.close()
    return True
