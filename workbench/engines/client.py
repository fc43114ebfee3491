"""Asks a server, and records what it answers (Client); finds out which engine it is (connect)."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from decoders.errors import InputError, quoted, refuse
from decoders.settings import nearest
from workbench.engines.addresses import Engine
from workbench.engines.dialects.dialect import Dialect
from workbench.engines.dialects.table import DIALECTS
from workbench.engines.record import Chunk, Query, Record, Shape, Speculation, shaped
from workbench.engines.wire import USUAL, Bounds, Wire


@dataclass
class _Answer:
    """An answer while it arrives."""

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
        wire: the connection
        dialect: how it is asked
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
            query: what is asked
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
        began, start = datetime.now(UTC), time.monotonic()
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
        seconds = time.monotonic() - start
        return self._record(answer, began.isoformat(timespec="milliseconds"), seconds, note)

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

    def _record(self, answer: _Answer, asked: str, seconds: float, note: str) -> Record:
        missing = answer.count is not None and answer.count != len(answer.ids)
        told = bool(answer.ids) and not answer.untold and not missing
        return Record(
            engine=self.wire.engine.name,
            kind=self.dialect.kind,
            model=None if answer.model is None else self.wire.hidden(answer.model),
            asked=asked,
            text=self.wire.hidden("".join(answer.texts)),
            tokens=tuple(answer.ids) if told else None,
            count=answer.count if answer.count is not None else len(answer.ids) or None,
            arrivals=tuple(answer.arrivals),
            seconds=seconds,
            finished=None if answer.finished is None else self.wire.hidden(answer.finished),
            speculation=answer.speculation,
            note=note,
        )


class Served(Shape):
    id: str
    owned_by: str | None = None


class Models(Shape):
    data: list[Served]


def connect(
    engine: Engine, limits: Bounds = USUAL, environ: Mapping[str, str] = os.environ
) -> Client:
    """A client that speaks the engine's dialect and has checked its model.

    Args:
        engine: the server
        limits: of each answer
        environ: where its key is

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


def _dialect(wire: Wire, models: list[Served]) -> Dialect:
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


def _model(wire: Wire, models: list[Served]) -> str | None:
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
        told = client.wire.get(path)
    except InputError:
        return None
    found = told.get(field) if isinstance(told, dict) else None
    return client.wire.hidden(found)[:80] if isinstance(found, str) else None
