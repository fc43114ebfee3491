"""Settings in the query string of a link: `?prompt=Once&decoders=greedy,mtad&temperature=0&mtad.beams=4`."""

import dataclasses
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from decoders import InputError, catalog
from decoders.settings import nearest
from workbench.studies.settings import Settings, shared
from workbench.studies.text import parse, written

OWN_WORDS = ("run", "__theme", "view", "logs")  # parameters of the page itself


def to_query(prompt: str, settings: Mapping[str, Any]) -> str:
    """The prompt, the decoders, and every setting that is not its default, as a query string without "?"."""
    query = {"prompt": prompt, "decoders": ",".join(settings["decoders"])}
    for name, field in _fields(settings["decoders"]).items():
        owner, _, key = name.rpartition(".")
        own = settings.get(owner, {}) if owner else settings
        if key in own and own[key] != field.default:
            query[name] = written(field, own[key])
    return urlencode(query)


def from_query(query: Mapping[str, str]) -> dict[str, Any]:
    """What a link says, as `Settings.to_json` has it, with `prompt` where it names one. Raises InputError where it cannot be used."""
    data: dict[str, Any] = {}
    fields = _fields(catalog)
    for name, text in query.items():
        owner, _, key = name.rpartition(".")
        if name == "prompt":
            data["prompt"] = text
        elif name == "decoders":
            data["decoders"] = [word for word in text.split(",") if word]
        elif name in fields:
            (data.setdefault(owner, {}) if owner else data)[key] = parse(fields[name], text)
        elif name not in OWN_WORDS:
            raise InputError(f"The link names a setting {name!r} that there is not: {nearest(name, fields)}")
    checked = {name: value for name, value in data.items() if name != "prompt"}
    if checked:
        Settings.from_json({"decoders": ["greedy"], **checked})
    return data


def _fields(decoders: Any) -> dict[str, dataclasses.Field]:
    """Every setting by the name a link gives it."""
    own = {f"{name}.{f.name}": f for name in decoders for f in dataclasses.fields(catalog[name])}
    return {**{f.name: f for f in shared()}, **own}
