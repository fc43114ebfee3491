"""A study in the query string of a link, and back.

For example `?prompt=Once&decoders=greedy,mtad&temperature=0&mtad.beams=4`, or
`?kind=batch&prompts=refrains`.

A decoder's setting that a link does not name has the library's default, whatever is tuned for the
pair in use. So a link names every setting that is tuned otherwise, and both old links and new ones
open with the settings that their maker saw. Only `chat_template` is the form's, which uses a
template where there is one.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from decoders import InputError, catalog
from decoders.errors import quoted
from decoders.settings import check
from workbench.kinds.registry import UNNAMED, studies
from workbench.studies.settings import method_of, settings_of, shared
from workbench.studies.study import GONE, Study
from workbench.studies.text import parse, written


@dataclasses.dataclass(frozen=True)
class Link:
    """The study that a link asks for.

    Attributes:
        kind: the kind of study
        data: the parts of the study that the link names, as the study's `to_json` has them
        faults: a sentence for each part that cannot be used and was left out
    """

    kind: str
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    faults: list[str] = dataclasses.field(default_factory=list)


def to_query(
    kind: str, data: Mapping[str, Any], start: Mapping[str, Any] = MappingProxyType({})
) -> str:
    """The prompts, the decoders and all settings that differ from their default, as a query string.

    Args:
        data: the study, as its `to_json` gives it
        start: the same for a form that no link fills; what it shows is left out, too

    Returns:
        the query string, without "?"
    """
    study = studies()[kind]
    settings, usual = data["settings"], {**study.usual, **start.get("settings", {})}
    query = {"kind": kind} if kind != UNNAMED else {}
    query |= study.to_link(data, start)
    if set(settings["decoders"]) != set(usual.get("decoders", [])):
        query["decoders"] = ",".join(settings["decoders"])
    for name, each in _fields(study, settings["decoders"]).items():
        owner, _, key = name.rpartition(".")
        own = settings.get(owner, {}) if owner else settings
        if key in own and own[key] != usual.get(name, each.default):
            query[name] = written(each, own[key])
    # Half a character cannot be encoded.
    return urlencode(query, errors="replace")


def from_query(query: Mapping[str, str]) -> Link | None:
    """The study that an address asks for; None if it names none.

    Unknown parameters are ignored. A setting that is misspelt or cannot be used is left out and
    named among the faults.
    """
    named = query.get("kind") in studies()
    kind = query["kind"] if named else UNNAMED
    study = studies()[kind]
    link, fields = Link(kind), _fields(study, catalog)
    settings: dict[str, Any] = {}
    for name, text in query.items():
        try:
            if name in fields:
                owner, _, key = name.rpartition(".")
                value = parse(fields[name], text)
                check(owner or "settings", fields[name], value)
                (settings.setdefault(owner, {}) if owner else settings)[key] = value
            elif name == "decoders":
                settings["decoders"] = [method_of(word).name for word in text.split(",") if word]
            elif name in study.linked:
                study.from_link(name, text, link.data, settings)
            elif name in GONE:
                raise InputError(GONE[name])
            elif close := difflib.get_close_matches(
                name, [*fields, *study.linked, "decoders"], 1, cutoff=0.8
            ):
                raise InputError(f"there is no setting {quoted(name)}: did you mean {close[0]!r}?")
        except InputError as error:
            link.faults.append(f"The link's {name} was left out: {error}")
    for owner in set(settings).intersection(catalog):
        try:
            catalog[owner](**settings[owner])
        except InputError as error:
            names = ", ".join(f"{owner}.{key}" for key in settings.pop(owner))
            link.faults.append(f"The link's {names} was left out: {error}")
    if settings:
        link.data["settings"] = settings
    return link if link.data or link.faults or named else None


def _fields(study: type[Study], decoders: Iterable[str]) -> dict[str, dataclasses.Field]:
    return {f.name: f for f in (*shared(), *study.own())} | {
        f"{name}.{f.name}": f for name in decoders for f in settings_of(name)
    }
