"""Asks a server within limits (Wire), and records what it answers (Client), once connected."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from decoders.errors import InputError, first_line, quoted, refuse
from decoders.settings import nearest
from workbench.engines.addresses import Engine
from workbench.engines.dialects import DIALECTS
from workbench.engines.record import (
    AnswerShape,
    Chunk,
    Dialect,
    Event,
    Query,
    Record,
    Speculation,
    message,
    shaped,
)

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
        with self._asked("GET", path) as pieces:
            return self._json(b"".join(pieces))

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

    def _object(self, data: bytes) -> Event:
        event = self._json(data)
        if not isinstance(event, dict):
            raise self.fault("sent JSON that is no object; is this its API?")
        return event

    def _json(self, data: bytes) -> Any:
        try:
            text = data.decode()
            value = json.loads(text)
            # Half a character, escaped, passes for JSON, but nothing can print or keep it.
            if "\\ud" in text.lower():
                json.dumps(value, ensure_ascii=False).encode()
        except UnicodeError:
            raise self.fault("sent an answer that is not UTF-8") from None
        except (ValueError, RecursionError):
            raise self.fault("sent an answer that is no JSON; is this its API?") from None
        return value

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


@dataclass
class _Answer:
    texts: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    arrivals: list[tuple[float, int | None]] = field(default_factory=list)
    untold: bool = False  # whether some tokens came without their ids
    count: int | None = None
    finished: str | None = None
    speculation: Speculation | None = None
    model: str | None = None

    def add(self, chunk: Chunk, at: float) -> None:
        new = None if chunk.ids is None else len(chunk.ids)
        if chunk.text or chunk.ids:
            self.arrivals.append((at, new))
            self.untold |= not chunk.ids
        self.texts.append(chunk.text)
        self.ids += chunk.ids or ()
        for name in ("count", "finished", "speculation", "model"):
            if (value := getattr(chunk, name)) is not None:
                setattr(self, name, value)

    @property
    def tokens(self) -> int:
        """The number of tokens that came, as far as it is known."""
        return max(len(self.ids), self.count or 0)


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
        refuse(
            (
                not 1 <= query.max_tokens <= self.wire.limits.tokens,
                f"An engine is asked for 1 to {self.wire.limits.tokens:,} tokens, not "
                f"{quoted(query.max_tokens)}.",
            ),
            (
                isinstance(query.prompt, tuple) and not self.dialect.takes_ids,
                f"Engine {self.wire.engine.name} takes no token ids; give the prompt as text.",
            ),
        )
        query = query.likeliest
        if (why := self.dialect.unsaid(query)) is not None:
            raise self.wire.fault(why)
        answer, note = _Answer(), ""
        start = time.monotonic()
        try:
            for chunk in self._chunks(query, answer):
                answer.add(chunk, at := time.monotonic() - start)
                heard(chunk, at)
            if answer.finished is None:
                raise self.wire.fault("broke off the answer")
        except InputError as error:
            if not answer.arrivals:
                raise InputError(self._sentence(error)) from None
            note = self._sentence(error)
        return self._record(answer, time.monotonic() - start, note)

    def _chunks(self, query: Query, answer: _Answer) -> Iterator[Chunk]:
        body = self.dialect.body(query, self.model)
        for chunk in self.dialect.chunks(self.wire.post(self.dialect.path, body)):
            if self.model is not None and chunk.model not in (None, self.model):
                raise self.wire.fault(
                    f"answered with the model {quoted(chunk.model)}, not with {quoted(self.model)}"
                )
            yield chunk
            # A server that tells neither ids nor counts sends at least a token with each text.
            if max(answer.tokens, 0 if answer.ids else len(answer.arrivals)) > query.max_tokens:
                raise self.wire.fault(
                    f"sent more than the {query.max_tokens:,} tokens asked for and was cut off"
                )

    def _sentence(self, error: InputError) -> str:
        """The error with the engine's name, whoever has raised it."""
        name, words = f"Engine {self.wire.engine.name}", self.wire.hidden(str(error))
        return words if words.startswith(name) else f"{name}: {words[0].lower()}{words[1:]}"

    def _record(self, answer: _Answer, seconds: float, note: str) -> Record:
        missing = answer.count is not None and answer.count != len(answer.ids)
        all_ids = bool(answer.ids) and not answer.untold and not missing
        return Record(
            engine=self.wire.engine.name,
            kind=self.dialect.kind,
            model=None if answer.model is None else self.wire.hidden(answer.model),
            text=self.wire.hidden("".join(answer.texts)),
            tokens=tuple(answer.ids) if all_ids else None,
            count=answer.count if answer.count is not None else len(answer.ids) or None,
            arrivals=tuple(answer.arrivals),
            seconds=seconds,
            finished=None if answer.finished is None else self.wire.hidden(answer.finished),
            speculation=answer.speculation,
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
        models = shaped(Models, wire.get("/v1/models")).data
        client = Client(wire, _dialect(wire, models), _model(wire, models))
    except InputError as error:
        wire.close()
        begins = str(error).startswith("Engine ")
        raise error if begins else wire.fault(f"lists no models: {error}".rstrip(".")) from None
    return client


def _dialect(wire: Wire, models: list[ServedModel]) -> Dialect:
    if wire.engine.kind is not None:
        return DIALECTS[wire.engine.kind]
    owners = {model.owned_by for model in models}
    for dialect in DIALECTS.values():
        if dialect.owner and dialect.owner in owners:
            return dialect
    for dialect in DIALECTS.values():
        if dialect.sign and _has(wire, dialect.sign):
            return dialect
    return DIALECTS["other"]


def _has(wire: Wire, path: str) -> bool:
    """Whether a server that describes itself, as those made with FastAPI do, has a path."""
    try:
        described = wire.get("/openapi.json")
    except InputError:
        return False
    paths = described.get("paths") if isinstance(described, dict) else None
    return isinstance(paths, dict) and path in paths


def _model(wire: Wire, models: list[ServedModel]) -> str | None:
    names, wanted = [model.id for model in models], wire.engine.model
    if wanted is None:
        return names[0] if names else None
    if wanted not in names:
        serves = ", ".join(quoted(name) for name in names[:5]) or "none that it lists"
        raise wire.fault(f"serves {serves}, not {quoted(wanted)}; correct `model`")
    return wanted


def version(client: Client) -> str | None:
    """The engine's version; None if it is not told."""
    if client.dialect.version is None:
        return None
    path, field = client.dialect.version
    try:
        answer = client.wire.get(path)
    except InputError:
        return None
    release = answer.get(field) if isinstance(answer, dict) else None
    return client.wire.hidden(release)[:80] if isinstance(release, str) else None
