"""What a study runs, by its name: a decoder of the catalog, or a server of another engine."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields
from types import MappingProxyType
from typing import Any

from decoders import InputError, Method, catalog
from decoders.errors import quoted, refuse
from decoders.settings import setting

SERVED = "engine:"  # begins the names of engines among decoders
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ADDRESS = re.compile(r"://|^//|[:/@\[\]]")


def _named(_: str, engine: Any) -> str:
    refuse(
        (
            not isinstance(engine, str) or ADDRESS.search(engine),
            "An engine is called by the name that whoever runs the workbench has given it, never "
            "by an address.",
        ),
        (
            not NAME.fullmatch(str(engine)),
            f"{quoted(engine)} is no name of an engine; names have letters, digits, “-”, “_” and "
            "“.” only.",
        ),
    )
    return engine


@dataclass(frozen=True)
class Served(Method):
    """A server of another engine, beside decoders: the same prompt and sampling, seen from outside.

    Attributes:
        engine: its name; never its address, which only whoever runs the workbench knows

    Raises:
        InputError: for what can be no name, such as an address
    """

    law = None
    paper = section = ""
    summary = "Another engine's server, measured from outside, over HTTP."

    engine: str = setting("", "name of the engine", read=_named)

    @property
    def name(self) -> str:  # type: ignore[override]  # each engine has its own
        return f"{SERVED}{self.engine}"

    @property
    def title(self) -> str:  # type: ignore[override]  # likewise
        return f"Engine {self.engine}"


def method_of(name: str, settings: Mapping[str, Any] = MappingProxyType({})) -> Method:
    """The decoder or the engine of a name, with its settings.

    Raises:
        InputError: for an unknown name, and for settings that cannot be used
    """
    if not is_engine(name):
        # Nobody who writes an address means a decoder.
        refuse(("://" in name, "Neither a decoder nor an engine is called by an address."))
        return catalog[name](**settings)
    refuse((settings, f"{quoted(name)} has no settings here; set up the server itself."))
    return Served(name.removeprefix(SERVED))


def is_engine(name: str) -> bool:
    return name.startswith(SERVED)


def known(name: str) -> bool:
    """Whether a name is that of a decoder, or can be that of an engine."""
    return name in catalog or (is_engine(name) and bool(NAME.fullmatch(name[len(SERVED) :])))


def settings_of(name: str) -> Sequence[Field]:
    """The settings that only this decoder has; raises InputError for an unknown name."""
    return () if is_engine(name) else fields(catalog[name])


def engines(methods: Sequence[Method]) -> list[Served]:
    """The engines among what a study runs."""
    return [method for method in methods if isinstance(method, Served)]


def no_engines(kind: str, methods: Sequence[Method]) -> None:
    """Raise InputError if an engine is among the decoders of a study that asks none."""
    if found := engines(methods):
        raise InputError(
            f"A {kind} asks no engines; leave out {found[0].title}, or compare it on Compare."
        )
