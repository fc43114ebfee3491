"""HTTP to one server, within limits, with one sentence for each way in which it can fail (Wire)."""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from decoders.errors import InputError, first_line
from workbench.engines.addresses import Engine
from workbench.engines.record import Event, message

STREAM = "text/event-stream"
SAID = 65_536  # bytes of an error that are read
SECRET = 8  # characters of the shortest key that is one


@dataclass(frozen=True)
class Bounds:
    """What one answer may take.

    Attributes:
        connect: seconds to connect
        silence: seconds between two pieces of an answer
        total: seconds of an answer; a piece that is awaited may add `silence`
        bytes: of an answer
        tokens: the most that may be asked for
    """

    connect: float = 5.0
    silence: float = 60.0
    total: float = 600.0
    bytes: int = 64 * 2**20
    tokens: int = 100_000


USUAL = Bounds()


class Wire:
    """The connection to an engine. Threads may share it.

    Args:
        engine: the server
        limits: of each answer
        environ: where the engine's key is
    """

    def __init__(
        self, engine: Engine, limits: Bounds = USUAL, environ: Mapping[str, str] = os.environ
    ):
        self.engine, self.limits = engine, limits
        self._secret = engine.secret(environ)
        key = {"Authorization": f"Bearer {self._secret}"} if self._secret else {}
        self._http = httpx.Client(
            base_url=engine.url,
            # Compressed, a small answer could become a huge one.
            headers={"Accept-Encoding": "identity", **key},
            timeout=httpx.Timeout(limits.silence, connect=limits.connect),
            # As many connections as there are threads that ask.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            follow_redirects=False,
            # Proxies and .netrc of the environment are not for these addresses.
            trust_env=False,
        )

    def close(self) -> None:
        self._http.close()

    def hidden(self, text: str) -> str:
        """A text without the key, which a server may send back.

        One shorter than SECRET stays: EMPTY, say, where none is needed, may be a word of a text.
        """
        secret = self._secret or ""
        return text.replace(secret, "[key]") if len(secret) >= SECRET else text

    def get(self, path: str) -> Any:
        """The JSON at a path.

        Raises:
            InputError: if there is none
        """
        return self._json(self._body(path))

    def post(self, path: str, body: Mapping[str, Any]) -> Iterator[Event]:
        """The chunks of an answer, or the whole answer as one, as they arrive.

        Raises:
            InputError: if the answer fails, also after some chunks
        """
        with self._asked("POST", path, body) as pieces:
            if not pieces.streams:
                yield self._object(b"".join(pieces))
                return
            for data in _data(_lines(pieces)):
                if data == b"[DONE]":
                    return
                yield self._object(data)

    def fault(self, words: str) -> InputError:
        """An error whose sentence begins with the engine."""
        return InputError(self.hidden(f"Engine {self.engine.name} {words}."))

    def _body(self, path: str) -> bytes:
        with self._asked("GET", path) as pieces:
            return b"".join(pieces)

    def _object(self, data: bytes) -> Event:
        found = self._json(data)
        if not isinstance(found, dict):
            raise self.fault("sent JSON that is no object; is this its API?")
        return found

    def _json(self, data: bytes) -> Any:
        text = self._decoded(data)
        try:
            found = json.loads(text)
            # Half a character, escaped, passes for JSON, but nothing can print or keep it.
            if "\\ud" in text.lower():
                json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise self.fault("sent an answer that is not UTF-8") from None
        except (ValueError, RecursionError):
            raise self.fault("sent an answer that is no JSON; is this its API?") from None
        return found

    def _decoded(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self.fault("sent an answer that is not UTF-8") from None

    @contextmanager
    def _asked(self, method: str, path: str, body: Any = None) -> Iterator["_Pieces"]:
        limits = self.limits
        try:
            with closing(self._sent(self._http.build_request(method, path, json=body))) as response:
                pieces = _Pieces(self, response, time.monotonic() + limits.total)
                self._refused(response, pieces, path)
                yield pieces
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            why = self.hidden(first_line(error)) or "no answer"
            raise self.fault(
                f"cannot be reached ({why}); start it, or correct its address"
            ) from None
        except httpx.TimeoutException:
            raise self.fault(f"was silent for {limits.silence:g} s") from None
        except httpx.TransportError:
            raise self.fault("broke off the answer") from None

    def _sent(self, request: httpx.Request) -> httpx.Response:
        """The response, before its body. Some servers close a connection that they have kept open,
        just as it is used again: then another one is made."""
        try:
            return self._http.send(request, stream=True)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            return self._http.send(request, stream=True)

    def _refused(self, response: httpx.Response, pieces: "_Pieces", path: str) -> None:
        """Raise the sentence for an answer that is none."""
        status = response.status_code
        if 300 <= status < 400:
            raise self.fault(
                f"redirects (HTTP {status}), which is not followed; give its final address"
            )
        if response.headers.get("content-encoding", "identity") != "identity":
            raise self.fault("compresses its answers though it was asked not to")
        if status == 200:
            return
        said = _said(pieces)
        words = f"; it says: {said}" if said else ""
        if status in (401, 403):
            raise self.fault(
                f"refuses the key (HTTP {status}); name the variable with the key as `key`{words}"
            )
        if status == 404:
            raise self.fault(f"has no {path} (HTTP 404){words or '; correct its address'}")
        raise self.fault(f"failed (HTTP {status}){words}")


class _Pieces:
    """The bytes of an answer, within the limits.

    Attributes:
        streams: whether it is a stream of events
    """

    def __init__(self, wire: Wire, response: httpx.Response, deadline: float):
        self._wire, self._response, self._deadline = wire, response, deadline
        self.streams = response.headers.get("content-type", "").startswith(STREAM)

    def __iter__(self) -> Iterator[bytes]:
        size, limits = 0, self._wire.limits
        for piece in self._response.iter_raw():
            size += len(piece)
            if size > limits.bytes:
                raise self._wire.fault(f"sent more than {limits.bytes:,} bytes and was cut off")
            if time.monotonic() > self._deadline:
                raise self._wire.fault(f"had not finished after {limits.total:g} s and was cut off")
            yield piece


def _said(pieces: Iterable[bytes]) -> str:
    """The server's words about an error, on one line; "" if they cannot be read."""
    body = b""
    try:
        for piece in pieces:
            body += piece
            if len(body) >= SAID:
                break
        return message(json.loads(body)).rstrip(".")
    # An error may break off, last too long, or be a page for people.
    except (httpx.HTTPError, ValueError, RecursionError):
        return ""


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a stream without their ends; the last one need not have any."""
    held: list[bytes] = []
    for piece in pieces:
        *ended, rest = piece.split(b"\n")
        for line in ended:
            yield b"".join([*held, line])
            held = []
        held.append(rest)
    yield b"".join(held)


def _data(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The data of server-sent events; comments and other fields are left out."""
    for line in lines:
        if line.startswith(b"data:"):
            yield line[5:].strip()
