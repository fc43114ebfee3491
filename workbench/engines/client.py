"""Asks a server within limits (Wire), and records what it answers (Client), once connected."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import httpx

from decoders.errors import InputError, first_line, quoted
from decoders.settings import nearest
from workbench.engines.addresses import Engine
from workbench.engines.dialects import (
    DIALECTS,
    OTHER,
    TRANSFORMERS,
    AnswerShape,
    Chunk,
    Dialect,
    Event,
    Query,
    message,
)

STREAM = "text/event-stream"
SECRET = 8  # characters of the shortest key that is one


@dataclass(frozen=True)
class Bounds:
    """What one answer may take.

    Attributes:
        connect: seconds to connect
        silence: seconds between two pieces of an answer
        total: seconds of an answer; a piece that is awaited may add `silence`
        bytes: of an answer
    """

    connect: float = 5.0
    silence: float = 60.0
    total: float = 600.0
    bytes: int = 64 * 2**20


USUAL = Bounds()


class Wire:
    """The connection to an engine. Threads may share it.

    Args:
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

    def get(self, path: str) -> Event:
        """The JSON object at a path.

        Raises:
            InputError: if there is none
        """
        with self._asked("GET", path) as (_, pieces):
            return self._object(b"".join(pieces))

    def post(self, path: str, body: Mapping[str, Any]) -> Iterator[Event]:
        """The chunks of an answer, or the whole answer as one, as they arrive.

        Raises:
            InputError: if the answer fails, also after some chunks
        """
        with self._asked("POST", path, body) as (response, pieces):
            if not response.headers.get("content-type", "").startswith(STREAM):
                yield self._object(b"".join(pieces))
                return
            for data in _data(pieces):
                if data == b"[DONE]":
                    return
                yield self._object(data)

    def fault(self, words: str) -> InputError:
        """An error whose sentence begins with the engine."""
        return InputError(self.hidden(f"Engine {self.engine.name} {words}."))

    def _object(self, data: bytes) -> Event:
        try:
            value = json.loads(data.decode())
            # Half a character, escaped, passes for JSON, but nothing can print or keep it.
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeError:
            raise self.fault("sent an answer that is not UTF-8") from None
        except (ValueError, RecursionError):
            raise self.fault("sent an answer that is no JSON; is this its API?") from None
        if not isinstance(value, dict):
            raise self.fault("sent JSON that is no object; is this its API?")
        return value

    @contextmanager
    def _asked(
        self, method: str, path: str, body: Any = None
    ) -> Iterator[tuple[httpx.Response, Iterator[bytes]]]:
        """The response, and the bytes of its body within the limits."""
        try:
            with closing(self._sent(self._http.build_request(method, path, json=body))) as response:
                pieces = self._pieces(response)
                self._refused(response, pieces, path)
                yield response, pieces
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            why = self.hidden(first_line(error)) or "no answer"
            raise self.fault(
                f"cannot be reached ({why}); start it, or correct its address"
            ) from None
        except httpx.TimeoutException:
            raise self.fault(f"was silent for {self.limits.silence:g} s") from None
        except httpx.TransportError:
            raise self.fault("broke off the answer") from None

    def _sent(self, request: httpx.Request) -> httpx.Response:
        """The response, before its body. Some servers close a connection that they have kept open,
        just as it is used again: then another one is made."""
        try:
            return self._http.send(request, stream=True)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            return self._http.send(request, stream=True)

    def _pieces(self, response: httpx.Response) -> Iterator[bytes]:
        size, limits, deadline = 0, self.limits, time.monotonic() + self.limits.total
        for piece in response.iter_raw():
            size += len(piece)
            if size > limits.bytes:
                raise self.fault(f"sent more than {limits.bytes:,} bytes and was cut off")
            if time.monotonic() > deadline:
                raise self.fault(f"had not finished after {limits.total:g} s and was cut off")
            yield piece

    def _refused(self, response: httpx.Response, pieces: Iterable[bytes], path: str) -> None:
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
        refused = f"refuses the key (HTTP {status}); name the variable with the key as `key`{words}"
        lacking = f"has no {path} (HTTP 404){words or '; correct its address'}"
        known = {401: refused, 403: refused, 404: lacking}
        raise self.fault(known.get(status, f"failed (HTTP {status}){words}"))


def _said(pieces: Iterable[bytes]) -> str:
    """The server's words about an error, on one line; "" if they cannot be read."""
    try:
        return message(json.loads(b"".join(pieces))).rstrip(".")
    # An error may break off, or be a page for people.
    except (httpx.HTTPError, ValueError, RecursionError):
        return ""


def _data(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The data of server-sent events; comments and other fields are left out.

    Lines may come in any pieces, and the last one need not end.
    """
    rest = b""  # a line that has not ended yet
    for piece in chain(pieces, [b"\n"]):
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line[5:].strip() for line in lines if line.startswith(b"data:"))


@dataclass(frozen=True)
class Record:
    """What came of a request.

    Attributes:
        text: the new text
        tokens: the ids of the new tokens; None if not every one was told
        count: number of new tokens; None if it is not known
        arrivals: for each piece that arrived the seconds since it was asked, and its tokens, None
            if they are not known; a speculative engine sends several tokens at once
        seconds: from the request to the end of the answer
        finished: "length", "stop", …; None if the answer was cut off
        note: one sentence about an answer that was cut off; "" if it is whole
    """

    text: str
    tokens: tuple[int, ...] | None
    count: int | None
    arrivals: tuple[tuple[float, int | None], ...]
    seconds: float
    finished: str | None
    note: str = ""

    @property
    def after_first(self) -> float | None:
        """Seconds after the first token; None if none came.

        A busy machine hears several pieces at once, so the speed after the first is not known.
        """
        return self.seconds - self.arrivals[0][0] if self.arrivals else None


class Client:
    """Asks one server. Threads may share it.

    Args:
        model: the model's name in the server's words; None lets it choose
    """

    def __init__(self, wire: Wire, dialect: Dialect, model: str | None = None):
        self.wire, self.dialect, self.model = wire, dialect, model

    @property
    def shown_model(self) -> str | None:
        """The model's name to show: without the key, which a server may list as one."""
        return None if self.model is None else self.wire.hidden(self.model)

    @property
    def version(self) -> str | None:
        """The engine's version; None if it is not told."""
        if self.dialect.version is None:
            return None
        path, field = self.dialect.version
        try:
            version = self.wire.get(path).get(field)
        except InputError:
            return None
        return self.wire.hidden(version)[:80] if isinstance(version, str) else None

    def ask(
        self,
        query: Query,
        heard: Callable[[Chunk, float], object] = lambda chunk, seconds: None,
    ) -> Record:
        """The record of one request.

        Args:
            heard: called with each piece and the seconds since it was asked; it may raise an
                InputError to end the answer

        Returns:
            the record; if the answer broke off or was cut off after it had begun, with what came
            and a note

        Raises:
            InputError: before the first token, for whatever is wrong
        """
        query = query.likeliest
        if (why := self.dialect.unsaid(query)) is not None:
            raise self.wire.fault(why)
        pieces, note = list[tuple[Chunk, float]](), ""
        start = time.monotonic()
        try:
            for chunk in self._chunks(query):
                pieces.append((chunk, time.monotonic() - start))
                heard(*pieces[-1])
            if all(chunk.finished is None for chunk, _ in pieces):
                raise self.wire.fault("broke off the answer")
        except InputError as error:
            note = self._sentence(error)
            if not any(chunk.text or chunk.ids for chunk, _ in pieces):
                raise InputError(note) from None
        return self.record(pieces, time.monotonic() - start, note)

    def _chunks(self, query: Query) -> Iterator[Chunk]:
        body, ids, texts = self.dialect.body(query, self.model), 0, 0
        for chunk in self.dialect.chunks(self.wire.post(self.dialect.path, body)):
            if self.model is not None and chunk.model not in (None, self.model):
                raise self.wire.fault(
                    f"answered with the model {quoted(chunk.model)}, not with {quoted(self.model)}"
                )
            yield chunk
            ids += len(chunk.ids or ())
            texts += bool(chunk.text)
            # A server that tells neither ids nor counts sends at least a token with each text.
            if max(ids or texts, chunk.count or 0) > query.max_tokens:
                raise self.wire.fault(
                    f"sent more than the {query.max_tokens:,} tokens asked for and was cut off"
                )

    def _sentence(self, error: InputError) -> str:
        """The error with the engine's name, whoever has raised it."""
        name, words = f"Engine {self.wire.engine.name}", self.wire.hidden(str(error))
        return words if words.startswith(name) else f"{name}: {words[0].lower()}{words[1:]}"

    def record(
        self, pieces: Sequence[tuple[Chunk, float]], seconds: float, note: str = ""
    ) -> Record:
        """What the pieces of an answer say together."""
        chunks = [chunk for chunk, _ in pieces]
        ids = tuple(token for chunk in chunks for token in chunk.ids or ())
        counts = [chunk.count for chunk in chunks if chunk.count is not None]
        ends = [chunk.finished for chunk in chunks if chunk.finished is not None]
        count = counts[-1] if counts else len(ids) or None
        untold = any(chunk.text and not chunk.ids for chunk in chunks)
        return Record(
            text=self.wire.hidden("".join(chunk.text for chunk in chunks)),
            tokens=ids if ids and not untold and count == len(ids) else None,
            count=count,
            arrivals=tuple(
                (at, None if chunk.ids is None else len(chunk.ids))
                for chunk, at in pieces
                if chunk.text or chunk.ids
            ),
            seconds=seconds,
            finished=self.wire.hidden(ends[-1]) if ends else None,
            note=note,
        )


class ServedModel(AnswerShape):
    id: str
    owned_by: str | None = None


class Models(AnswerShape):
    data: list[ServedModel]


def connect(
    engine: Engine, limits: Bounds = USUAL, environ: Mapping[str, str] = os.environ
) -> Client:
    """A client that speaks the engine's dialect and has checked its model.

    Raises:
        InputError: if it does not answer, or serves another model than the entry says
    """
    if engine.kind is not None and engine.kind not in DIALECTS:
        raise InputError(
            f"Engine {engine.name} has no known kind {quoted(engine.kind)}: "
            f"{nearest(engine.kind, DIALECTS)}"
        )
    wire = Wire(engine, limits, environ)
    try:
        models = Models.of(wire.get("/v1/models")).data
        client = Client(wire, _dialect(wire, models), _model(wire, models))
    except InputError as error:
        wire.close()
        begins = str(error).startswith("Engine ")
        raise error if begins else wire.fault(f"lists no models: {error}".rstrip(".")) from None
    return client


def _dialect(wire: Wire, models: list[ServedModel]) -> Dialect:
    if wire.engine.kind is not None:
        return DIALECTS[wire.engine.kind]
    owners = {model.owned_by for model in models if model.owned_by}
    for dialect in DIALECTS.values():
        if dialect.owner in owners:
            return dialect
    try:
        paths = wire.get("/openapi.json").get("paths")  # as of servers made with FastAPI
    except InputError:
        paths = None
    # Its list of models does not name it.
    return TRANSFORMERS if isinstance(paths, dict) and "/load_model" in paths else OTHER


def _model(wire: Wire, models: list[ServedModel]) -> str | None:
    names, wanted = [model.id for model in models], wire.engine.model
    if wanted is None:
        return names[0] if names else None
    if wanted not in names:
        serves = ", ".join(quoted(name) for name in names[:5]) or "none that it lists"
        raise wire.fault(f"serves {serves}, not {quoted(wanted)}; correct `model`")
    return wanted
