"""The kinds of study, the only list of them; studies in links, and runs that come from a file.

A link is, for example, `?prompt=Once&decoders=greedy,mtad&temperature=0&mtad.beams=4`, or
`?kind=batch&prompts=refrains`. A decoder's setting that it does not name has the library's default,
whatever is tuned for the pair in use. So a link names every setting that is tuned otherwise, and
both old links and new ones open with the settings that their maker saw. Only `chat_template` is the
form's, which uses a template where there is one.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib import import_module
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from decoders import InputError, catalog
from decoders.errors import quoted
from decoders.settings import check, nearest
from workbench.runs.record import Run
from workbench.studies.prompts import LONGEST_TYPED
from workbench.studies.settings import method_of, parse, settings_of, shared, written
from workbench.studies.study import GONE, Study


@dataclass(frozen=True)
class StudyKind:
    """One kind of study. Its module and its form are imported when they are first asked for.

    Attributes:
        name: its name in runs, links and files
        study: the name of its class of studies in the module; None for a kind whose runs are of
            another kind, or that keeps no runs
        module: its module; by default `workbench.kinds.<name>`. It may have `VIEW`, the look of its
            runs (a `workbench.show.view.View`), `register(commands)`, which adds its command to
            the terminal, and `text(result)` and `summary(run)`, which show a finished text and a
            run's figures there
        form: its part of the page; by default `form.py` beside it. It has `TAB`, a class that takes
            a `workbench.page.host.Host` and the state with the chosen pair, or `endpoints(host)`,
            which offers its endpoints, or both
    """

    name: str
    study: str | None = None
    module: Any = None
    form: Any = None

    def part(self, name: str) -> Any:
        return getattr(self.module or import_module(f"workbench.kinds.{self.name}"), name, None)

    @property
    def on_page(self) -> Any:
        return self.form or import_module(f"workbench.kinds.{self.name}.form")


# In the order of tabs and commands.
KINDS: dict[str, StudyKind] = {
    kind.name: kind
    for kind in (
        StudyKind("comparison", "Comparison"),
        StudyKind("branch"),
        StudyKind("draw", "Draw"),
        StudyKind("batch", "Batch"),
        StudyKind("experiment"),
    )
}
UNNAMED = "comparison"  # the kind of a link that names none


def studies() -> Mapping[str, type[Study]]:
    return {name: kind.part(kind.study) for name, kind in KINDS.items() if kind.study is not None}


def study_of(kind: str) -> type[Study]:
    """The class of studies of this kind; for an unknown kind, their base."""
    return studies().get(kind, Study)


def part_of(kind: str, name: str) -> Any:
    return KINDS[kind].part(name) if kind in KINDS else None


@dataclass(frozen=True)
class Link:
    """The study that a link asks for.

    Attributes:
        kind: the kind of study
        data: the parts of the study that the link names, as the study's `to_json` has them
        faults: a sentence for each part that cannot be used and was left out
    """

    kind: str
    data: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


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
    if (gone := query.get("kind")) in GONE:
        return Link(UNNAMED, faults=[GONE[gone]])
    study = studies()[kind]
    link, fields = Link(kind), _fields(study, catalog)
    settings: dict[str, Any] = {}
    for name, text in query.items():
        try:
            if name == "kind" and not named:
                raise InputError(f"there is no kind {quoted(text)}: {nearest(text, studies())}")
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


def _fields(study: type[Study], decoders: Iterable[str]) -> dict[str, Field]:
    return {f.name: f for f in (*shared(), *study.own())} | {
        f"{name}.{f.name}": f for name in decoders for f in settings_of(name)
    }


# The most that a run from a file may hold, so that every page that shows it stays quick: the place
# in the run, characters of each text there, and items of all lists there together. The first line
# that matches counts.
LIMITS = (
    ("title", LONGEST_TYPED, 0),
    ("study*", LONGEST_TYPED, 1_000_000),  # prompts, reference documents, a branch's token ids
    ("results", 0, 10_000),
    ("results.samples", 0, 200_000),
    ("results.samples.text", LONGEST_TYPED, 0),
    ("results.samples.prompt_parts*", LONGEST_TYPED, 100_000),
    ("results.samples.tokens", 0, 100_000),
    ("results.samples.rounds", 0, 100_000),
    ("*", 20_000, 1_000_000),
)
WIDEST = 1000  # fields of one object, and characters of a field's name
DEEPEST = 32  # lists and objects within each other


def read(text: str | bytes) -> Run:
    """The run in a JSON export.

    Raises:
        InputError: if any part of it cannot be shown; its settings are checked as those of a new
            study are
    """
    run = Run.from_json(text)
    _limited(run.to_json(), Counter())
    known = studies()
    if run.kind not in known:
        says = (
            f"This is a run of the kind {quoted(run.kind)}; only {', '.join(known)} can be shown."
        )
        raise InputError(GONE.get(run.kind, says))
    known[run.kind].of_file(run.study)
    return run


def _limited(value: Any, counts: Counter[str], place: str = "", depth: int = 0) -> None:
    """Refuse a value that exceeds the limits; `counts` has the items so far at each place."""
    longest, most = _limits(place)
    if isinstance(value, str) and len(value) > longest:
        raise _beyond(place, f"has {len(value):,} characters", f"{longest:,}")
    if isinstance(value, dict):
        if len(value) > WIDEST or max(map(len, value), default=0) > WIDEST:
            raise _beyond(
                place,
                "has too many fields or too long names",
                f"{WIDEST:,} fields and characters of a name",
            )
        for name, inner in value.items():
            _limited(inner, counts, f"{place}.{name}" if place else name, depth + 1)
    elif isinstance(value, list):
        counts[place] += len(value)
        if counts[place] > most:
            raise _beyond(place, f"has {counts[place]:,} items", f"{most:,}")
        for inner in value:
            _limited(inner, counts, place, depth + 1)
    if depth > DEEPEST:
        raise _beyond(place, "is nested too deeply", f"{DEEPEST} levels")


def _beyond(place: str, what: str, most: str) -> InputError:
    return InputError(
        f"The run's `{place:.80}` {what}; an imported run may have at most {most} there."
    )


@lru_cache(1000)  # a file may name its fields as it likes
def _limits(place: str) -> tuple[int, int]:
    return next(
        (characters, items) for places, characters, items in LIMITS if fnmatchcase(place, places)
    )
