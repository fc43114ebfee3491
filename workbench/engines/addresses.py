"""Where engines are: only the environment says.

Nothing that a visitor sends reaches this file: a public page is no way to call other hosts.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from decoders.errors import InputError, quoted, refuse
from decoders.settings import nearest

LISTED, GONE = "WORKBENCH_ENGINES", "WORKBENCH_ENGINES_FILE"
FIELDS = ("url", "key", "model", "kind", "dtype")
DTYPES = ("float32", "bfloat16", "float16", "float64")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Engine:
    """A server.

    Attributes:
        name: what the page and the terminal call it
        url: its address, without a path of the API
        key: the name of the environment variable with its key, which is never kept
        model: the model that it should serve; None takes the one that it serves
        kind: its dialect; None finds out
        dtype: the number type that it computes in, for the verdict on its greedy texts; None if it
            is not known
    """

    name: str
    url: str
    key: str | None = None
    model: str | None = None
    kind: str | None = None
    dtype: str | None = None

    def secret(self, environ: Mapping[str, str] = os.environ) -> str | None:
        """The key, read when it is used.

        Raises:
            InputError: if the variable is not set, or its value fits no header
        """
        if self.key is None:
            return None
        value = environ.get(self.key, "")
        # Neither the value nor the name is shown: somebody may have put the key in its place.
        refuse(
            (
                not value,
                f"Engine {self.name}: `key` must name an environment variable that is set; it "
                "does not take the key itself.",
            ),
            (
                not all(33 <= ord(character) <= 126 for character in value),
                f"Engine {self.name}: the variable that `key` names holds a line break, a space or "
                "another character that no key has; set it again.",
            ),
        )
        return value


def engines(environ: Mapping[str, str] = os.environ) -> dict[str, Engine]:
    """The engines that the environment names.

    Args:
        environ: WORKBENCH_ENGINES lists them, as in "fast=http://127.0.0.1:8000 key=FAST_KEY;
            other=https://host"

    Raises:
        InputError: for an entry that cannot be used
    """
    refuse((environ.get(GONE), f"{GONE} is gone; write its engines into {LISTED}."))
    known: dict[str, Engine] = {}
    for entry in filter(None, map(str.strip, environ.get(LISTED, "").split(";"))):
        engine = _entry(entry)
        twice = engine.name in known
        refuse((twice, f"{LISTED} names the engine {quoted(engine.name)} a second time."))
        known[engine.name] = engine
    return known


def named(name: str, environ: Mapping[str, str] = os.environ) -> Engine:
    """The engine of a name; for whoever may use any address, also that of a URL.

    Args:
        name: a name, or a URL that the caller has written in the terminal
        environ: see `engines`
    """
    if "://" in name:
        url = checked(name, "the URL")
        return Engine(urlsplit(url).netloc, url)
    known = engines(environ)
    if name not in known:
        hint = nearest(name, known) if known else f"list engines in {LISTED}, or give a URL."
        raise InputError(f"There is no engine {quoted(name)}: {hint}")
    return known[name]


def checked(url: Any, where: str) -> str:
    """A URL that can be called, without "/" and "/v1" at its end.

    Raises:
        InputError: for any other; the message does not repeat it, for it may hold a password
    """
    refuse(
        (
            not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url,
            f"{where} must be a URL, as in http://127.0.0.1:8000.",
        )
    )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        httpx.URL(url)
        (host or "").encode("idna")  # as a socket does
    except (ValueError, httpx.InvalidURL):
        raise InputError(f"{where} has a host or a port that cannot be read; correct it.") from None
    refuse(
        (
            parts.scheme not in ("http", "https"),
            f"{where} must begin with http:// or https://.",
        ),
        ("@" in parts.netloc, f"{where} must hold no user and no password; use `key` instead."),
        (not host or port == 0, f"{where} has no host or no port to connect to; correct it."),
        ("?" in url or "#" in url, f"{where} must end with its host, its port or a path."),
    )
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def _entry(entry: str) -> Engine:
    (name, equals, url), *others = (part.partition("=") for part in entry.split())
    fields = {"url": url, **{field: value for field, _, value in others}}
    refuse(
        (
            # What stands there is not repeated, for it may be a key.
            not equals or not all(each[1] for each in others),
            f"{LISTED} must be a list as in name=http://127.0.0.1:8000 key=VARIABLE; other=…",
        ),
        (
            not NAME.fullmatch(name),
            f"{LISTED}: the name {quoted(name)} must have letters, digits, “-”, “_” and “.” only.",
        ),
        (
            "start" in fields,
            f"{LISTED}: the engine {quoted(name)} has `start`, but nothing starts servers here any "
            "more; start it yourself, and give its `url`.",
        ),
    )
    for field, value in fields.items():
        refuse(
            (
                field not in FIELDS,
                f"{LISTED}: an engine has no field {quoted(field)}: {nearest(field, FIELDS)}",
            ),
            (not value, f"{LISTED}: `{field}` of the engine {quoted(name)} must be text."),
        )
    refuse(
        (
            fields.get("dtype", DTYPES[0]) not in DTYPES,
            f"{LISTED}: `dtype` of the engine {quoted(name)} must be one of {', '.join(DTYPES)}.",
        )
    )
    fields["url"] = checked(fields["url"], f"{LISTED}: the URL of {name}")
    return Engine(name, **fields)
