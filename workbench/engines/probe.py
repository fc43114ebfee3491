"""Finds out which engine answers at an address, and what it tells (connect, probe)."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from decoders.errors import InputError, quoted
from decoders.settings import nearest
from workbench.engines.addresses import Engine
from workbench.engines.answers import Count, Event, Shape, shaped
from workbench.engines.client import Client
from workbench.engines.dialects.dialect import Dialect
from workbench.engines.dialects.table import DIALECTS
from workbench.engines.record import Query
from workbench.engines.wire import USUAL, Bounds, Wire

PROMPT = "Once upon a time"
# llama.cpp drafts one token less than may still come, so with two it drafts nothing.
TOKENS = 8


class Served(Shape):
    id: str
    owned_by: str | None = None
    max_model_len: Count | None = None


class Models(Shape):
    data: list[Served]


@dataclass(frozen=True)
class Abilities:
    """What a server tells.

    Attributes:
        kind: its dialect
        model: the model that it serves, in its own words; None if it does not say
        version: of the engine; None likewise
        takes_ids: whether prompts may be token ids
        token_ids: whether it tells the ids of the tokens that it writes
        logprobs: whether it tells their log-probabilities
        prompt_logprobs: whether it tells those of the prompt
        speculation: "each step", "request" or "server": the finest counts of draft tokens; None if
            there are none
    """

    kind: str
    model: str | None
    version: str | None
    takes_ids: bool
    token_ids: bool
    logprobs: bool
    prompt_logprobs: bool
    speculation: str | None


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


def probe(client: Client) -> Abilities:
    """Ask for a few tokens, and see what comes with them.

    Raises:
        InputError: if the server does not answer
    """
    dialect = client.dialect
    record = client.ask(Query(PROMPT, TOKENS, temperature=0.0), alone=True)
    found = record.speculation
    per = None if found is None else "each step" if found.per_step else found.of
    return Abilities(
        dialect.kind,
        client.shown_model,
        version(client),
        dialect.takes_ids,
        record.tokens is not None,
        _tells(client, dialect.logprobs),
        dialect.prompt_logprobs is not None and _tells(client, dialect.prompt_logprobs),
        per,
    )


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


def _tells(client: Client, fields: tuple[str, str]) -> bool:
    """Whether an answer brings the second field if the first asks for it."""
    asks, brings = fields
    query = Query(PROMPT, 1, stream=False)
    body = {**client.dialect.body(query, client.model), asks: 1}
    try:
        events: list[Event] = list(client.wire.post(client.dialect.path, body))
    except InputError:
        return False
    return any(_within(event, brings) for event in events)


def _within(event: Event, name: str) -> bool:
    choices = event.get("choices")
    places = [event, event.get("meta_info"), *(choices if isinstance(choices, list) else ())]
    return any(isinstance(place, dict) and place.get(name) is not None for place in places)
