"""A study in the query string of a link: `?prompt=Once&decoders=greedy,mtad&temperature=0&mtad.beams=4`, `?kind=batch&prompts=refrains`."""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from decoders import InputError, catalog
from decoders.settings import check, nearest
from workbench.studies import batch, draw
from workbench.studies.batch import Batch
from workbench.studies.comparison import Comparison
from workbench.studies.draw import Draw
from workbench.studies.prompts import BUILT_IN
from workbench.studies.schemes import SCHEMES
from workbench.studies.settings import shared
from workbench.studies.text import parse, written

DEFAULTS = {Batch.kind: batch.DEFAULTS, Draw.kind: draw.DEFAULTS}  # the shared settings whose default differs
BOUNDS = {Batch.kind: batch.bounds, Draw.kind: draw.bounds}  # the fields that only one kind has


@dataclass(frozen=True)
class Link:
    """What a link asks for. `data` has the form of a study's `to_json`, with only what the link names; `faults` has a sentence for each
    part that cannot be used and was left out."""

    kind: str
    data: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def to_query(kind: str, data: Mapping[str, Any]) -> str:
    """The prompt or prompts, the decoders, and every setting that is not its default, as a query string without "?"."""
    settings = data["settings"]
    query: dict[str, Any] = {"kind": kind} if kind in BOUNDS else {}
    if kind == Batch.kind:
        prompts = data.get("prompts") or {}
        if prompts.get("name") in BUILT_IN:  # the texts of a file do not fit into a link
            query |= {name: prompts[key] for name, key in (("prompts", "name"), ("count", "count")) if key in prompts}
        query |= {name: ",".join(map(str, settings[name])) for name in ("sizes", "schemes") if name in settings}
        if not settings.get("ignore_eos", True):
            query["ignore_eos"] = False
    else:
        query["prompt"] = data["prompt"]
    query["decoders"] = ",".join(settings["decoders"])
    defaults = DEFAULTS.get(kind, {})
    for name, each in _fields(kind, settings["decoders"]).items():
        owner, _, key = name.rpartition(".")
        own = settings.get(owner, {}) if owner else settings
        if key in own and own[key] != defaults.get(name, each.default):
            query[name] = written(each, own[key])
    return urlencode(query, errors="replace")  # half a character stands for itself nowhere


def from_query(query: Mapping[str, str]) -> Link | None:
    """What the address asks for; None if it asks for no study. Unknown parameters are ignored; a setting that is misspelt or cannot be
    used is left out and named among the faults."""
    kind = next((name for name in BOUNDS if name == query.get("kind")), Comparison.kind)
    link, fields = Link(kind), _fields(kind, catalog)
    settings: dict[str, Any] = {}
    for name, text in query.items():
        try:
            if name in fields:
                owner, _, key = name.rpartition(".")
                value = parse(fields[name], text)
                check(owner or "settings", fields[name], value)
                if owner:
                    catalog[owner](**{key: value})
                (settings.setdefault(owner, {}) if owner else settings)[key] = value
            elif name == "decoders":
                settings["decoders"] = [catalog[word].name for word in text.split(",") if word]
            elif kind == Batch.kind:
                _read_batch(name, text, link.data, settings)
            elif name == "prompt":
                link.data["prompt"] = text
            elif close := difflib.get_close_matches(name, [*fields, "prompt", "decoders"], 1, cutoff=0.8):
                raise InputError(f"there is no setting {name!r}: did you mean {close[0]!r}?")
        except InputError as error:
            link.faults.append(f"The link's {name} was left out: {error}")
    if settings:
        link.data["settings"] = settings
    return link if link.data or link.faults else None


def _read_batch(name: str, text: str, data: dict[str, Any], settings: dict[str, Any]) -> None:
    """Write one parameter that only batches have into `data` or `settings`. Raises InputError if it cannot be used."""
    words = [word for word in text.split(",") if word]
    if name == "prompts":
        if text not in BUILT_IN:
            raise InputError(f"there are no built-in prompts {text!r}: {nearest(text, BUILT_IN)}")
        data.setdefault("prompts", {})["name"] = text
    elif name == "count":
        data.setdefault("prompts", {})["count"] = _whole(text)
    elif name == "sizes":
        settings["sizes"] = [_whole(word) for word in words]
    elif name == "schemes":
        unknown = [word for word in words if word not in SCHEMES]
        if unknown:
            raise InputError(f"there is no scheme {unknown[0]!r}: {nearest(unknown[0], SCHEMES)}")
        settings["schemes"] = words
    elif name == "ignore_eos":
        settings["ignore_eos"] = text != "False"


def _whole(text: str) -> int:
    if not text.isdecimal() or len(text) > 5 or not 1 <= int(text) <= 10_000:
        raise InputError(f"only whole numbers from 1 to 10,000 can be used, not {text!r:.40}.")
    return int(text)


def _fields(kind: str, decoders: Iterable[str]) -> dict[str, dataclasses.Field]:
    """Every setting by the name that a link gives it."""
    own = {f"{name}.{f.name}": f for name in decoders for f in dataclasses.fields(catalog[name])}
    bound = {f.name: f for f in BOUNDS[kind]()} if kind in BOUNDS else {}
    return {**{f.name: f for f in shared()}, **bound, **own}
