"""Finds out which engine answers at an address, and what it serves (connect, version)."""

import os
from collections.abc import Mapping

from decoders.errors import InputError, quoted
from decoders.settings import nearest
from workbench.engines.addresses import Engine
from workbench.engines.answers import Shape, shaped
from workbench.engines.client import Client
from workbench.engines.dialects.dialect import Dialect
from workbench.engines.dialects.table import DIALECTS
from workbench.engines.wire import USUAL, Bounds, Wire


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
