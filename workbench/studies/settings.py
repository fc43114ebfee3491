"""What a study runs, decoders and engines by name, with their settings, and values as text."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any

from decoders import InputError, Method, Warping, catalog
from decoders.errors import quoted, refuse
from decoders.inputs import text
from decoders.settings import check, nearest, setting

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
    return name in catalog or (is_engine(name) and bool(NAME.fullmatch(name[len(SERVED) :])))


def settings_of(name: str) -> Sequence[Field]:
    return () if is_engine(name) else fields(catalog[name])


MOST_SYSTEM = 20_000  # characters


def _text(owner: str, value: Any) -> str:
    refuse(
        (not isinstance(value, str), f"{owner}: system must be a text, not {quoted(value)}."),
        (
            len(str(value)) > MOST_SYSTEM,
            f"{owner}: system has {len(str(value)):,} characters; give at most {MOST_SYSTEM:,}.",
        ),
    )
    return text("system", value)


WARPING = tuple(Warping.__dataclass_fields__)


def of_warping(name: str, **bounds: Any) -> Any:
    """The field of a Warping as a field of settings, with bounds that a form can show."""
    each = Warping.__dataclass_fields__[name]
    return field(default=each.default, metadata={**each.metadata, **bounds})


@dataclass(frozen=True)
class Settings:
    """The decoders, and the settings that they share.

    The form, the flags and the endpoint take labels, ranges and help from the metadata of these
    fields, as for a decoder's own settings. The help of each field describes it.

    Attributes:
        methods: the decoders with their own settings, and engines, each at most once, in the order
            in which they are shown

    Raises:
        InputError: for values out of range, and if no decoder is chosen or one is chosen twice
    """

    methods: tuple[Method, ...]
    max_new_tokens: int = setting(64, "new tokens at most", low=1, high=100_000)
    temperature: float = of_warping("temperature")
    top_k: int = of_warping("top_k", high=1_000_000)
    top_p: float = of_warping("top_p", low=1e-9)
    min_p: float = of_warping("min_p")
    top_n_sigma: float = of_warping("top_n_sigma")
    temperature_last: bool = of_warping("temperature_last", choices=(False, True))
    seed: int = setting(
        0, "seed of the first repeat; the next one has seed + 1", low=0, high=2**32 - 1
    )
    repeats: int = setting(1, "runs of each decoder, each with the next seed", low=1, high=1000)
    timings: int = setting(
        3,
        "timings of each decoder with the same seed; with two or more, speeds show a range, and "
        "short or uncertain runs are repeated",
        low=1,
        high=100,
    )
    chat_template: bool | str = setting(
        False,
        "put a text to the model in its chat template; off: continue the text as it stands",
        choices=(False, True, "auto"),
    )
    system: str = setting(
        "", "system message for the chat template; empty: the template's own, if any", read=_text
    )
    penalties: bool = setting(
        False,
        "apply the target's generation config: repetition penalty, suppressed tokens",
        choices=(False, True),
    )

    def __post_init__(self) -> None:
        for each in shared():
            check("settings", each, getattr(self, each.name))
        names = [m.name for m in self.methods]
        twice = min((n for n in names if names.count(n) > 1), default=None)
        refuse(
            (not names, "No decoder is chosen; choose at least one."),
            (twice, f"{twice} is chosen twice; choose each decoder once."),
        )

    @property
    def engines(self) -> list[Served]:
        return [method for method in self.methods if isinstance(method, Served)]

    @property
    def sampling(self) -> dict[str, Any]:
        """The options of `decoders.read`, which change a model's distribution before a draw."""
        return {**asdict(Warping.of(self)), "penalties": self.penalties}

    @property
    def decoding(self) -> dict[str, Any]:
        """The options of `decoders.stream`; the seed is that of the first repeat."""
        return {"max_new_tokens": self.max_new_tokens, "seed": self.seed, **self.sampling}

    def to_json(self) -> dict[str, Any]:
        """One flat object.

        Returns:
            the shared settings, `decoders` with the names, and under each name all its own settings
        """
        return {
            **{f.name: getattr(self, f.name) for f in shared()},
            "decoders": [m.name for m in self.methods],
            **{m.name: _plain(asdict(m)) for m in self.methods if not is_engine(m.name)},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Settings":
        """The settings in data that `to_json` gave.

        Args:
            data: the settings by name; those left out have their default

        Raises:
            InputError: for an unknown name, and for a value that cannot be used
        """
        if not isinstance(data, Mapping):
            raise InputError(f"Settings must be one JSON object, not {quoted(data)}.")
        names = data.get("decoders", [])
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
            raise InputError(f"`decoders` must be a list of names, not {quoted(names)}.")
        known = [f.name for f in shared()]
        for name, value in data.items():
            if name == "energy":  # of earlier versions, which could measure it again and longer
                continue
            if name not in (*known, "decoders", *catalog):
                raise InputError(
                    f"There is no setting {quoted(name)}: "
                    f"{nearest(str(name), [*known, 'decoders', *catalog])}"
                )
            if name in catalog and not isinstance(value, Mapping):
                raise InputError(
                    f"The settings of {name} must be one JSON object, not {quoted(value)}."
                )
        return Settings(
            tuple(method_of(name, data.get(name, {})) for name in names),
            **{n: data[n] for n in known if n in data},
        )


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """The same with lists instead of tuples, as JSON has them."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in data.items()
    }


def changed(method: Method) -> dict[str, Any]:
    """The decoder's own settings that differ from its defaults, as JSON has them."""
    usual = {f.name: f.default for f in fields(method)}
    return _plain({name: x for name, x in asdict(method).items() if x != usual[name]})


def shared() -> list[Field]:
    return [f for f in fields(Settings) if f.name != "methods"]


SHOWN = tuple(catalog[name]() for name in ("greedy", "speculative", "mtad", "dsbd", "beam_search"))
# The sampling that forms, commands and endpoints begin with; it suits the pair that ships with this
# project.
OPENING = asdict(Warping(0.7, top_p=0.9))
# Sampling by name, and nothing else: decoders and the number of tokens stay as they are. The
# defaults of a decoder are those of its paper; a paper's preset adds its warping.
PRESETS = {
    "as the page opens": OPENING,
    "greedy (T=0)": asdict(Warping(0.0)),
    "MTAD paper": asdict(Warping(1.0, 20, 0.9)),
    "DSBD paper": asdict(Warping(1.0, 10, 0.8)),
    "sampling T=1": asdict(Warping()),
}
# What cuts tokens off, in words.
CUTS = {
    name: {"top_n_sigma": "top-nσ"}.get(name, name.replace("_", "-"))
    for name in WARPING
    if name not in ("temperature", "temperature_last")
}

PROMPTS = {
    "A story": "Once upon a time, there was a little girl named Lily. She",
    "A friendship": "Tom and his dog Max lived near the forest. One morning they heard",
    "A dialogue": '"Can I play with you?" asked the small bear.',
    "A surprise": "Mia opened the big red box. Inside she found",
}


def placed(names: Iterable[str]) -> list[str]:
    """Decoders in the order in which they run and are shown: plain, those of `SHOWN`, others."""
    names = list(names)
    first = dict.fromkeys(("greedy", "multinomial", *(method.name for method in SHOWN)))
    return [n for n in first if n in names] + [n for n in names if n not in first]


def in_words(settings: Mapping[str, Any]) -> str:
    """The sampling settings in words, without values that are not numbers or cut nothing off.

    Args:
        settings: shared settings by name; those left out have their default
    """
    usual = Warping()
    values = {"temperature": settings.get("temperature", usual.temperature)}
    for name, word in CUTS.items():
        value = settings.get(name, getattr(usual, name))
        if values["temperature"] and value != getattr(usual, name):
            values[word] = value
    last = len(values) > 1 and settings.get("temperature_last") is True
    words = [f"{word} {v:g}" for word, v in values.items() if isinstance(v, (int, float))]
    return ", ".join([*words, *(["temperature last"] if last else [])])


def with_seed(settings: Mapping[str, Any]) -> str:
    """The sampling settings and the seed: "temperature 0.7, top-p 0.9, seed 5".

    Args:
        settings: shared settings by name; those left out have their default
    """
    return f"{in_words(settings)}, seed {settings.get('seed', Settings.seed)}"


# ---- Values as text: settings, for inputs on the page and for links, and back; counts and places


def is_switch(field: Field) -> bool:
    return isinstance(field.default, bool) and {False, True} <= set(field.metadata["choices"])


def is_text(field: Field) -> bool:
    return isinstance(field.default, str) and not field.metadata["choices"]


def is_list(field: Field) -> bool:
    return isinstance(field.default, tuple)


def written(field: Field, value: Any) -> str:
    """A setting's value as text.

    `parse` reads it back, except several texts, which are joined into one.
    """
    if is_list(field) and not isinstance(value, str):
        return ("\n\n" if any(isinstance(v, str) for v in value) else ",").join(map(str, value))
    return "" if value is None else str(value)


def parse(field: Field, raw: Any) -> Any:
    """A typed value as the field has it, whole numbers as int.

    A value that cannot be read is returned unchanged, for a check to refuse.
    """
    if is_text(field):
        return raw
    if is_list(field):
        return () if raw == "" and not field.default else raw
    if isinstance(raw, str):
        for choice in field.metadata["choices"]:
            if raw.strip() == written(field, choice):
                return choice
        try:
            raw = float(raw)
        except ValueError:
            return raw
    if isinstance(field.metadata["low"], int) and isinstance(raw, float) and raw.is_integer():
        return int(raw)
    return raw


def allowed(field: Field, most: float | None = None) -> str:
    """The values that a field may take, in words.

    Args:
        most: the largest value in this place, if it is lower than the field's
    """
    low, high, choices = (field.metadata[key] for key in ("low", "high", "choices"))
    words = [written(field, c) or "empty" for c in choices]
    if low is not None:
        high = high if most is None else min(high, most)
        words.append(f"{low:g} to {high:,.16g}")
    return " or ".join(words)


def counted(count: int, one: str, several: str = "") -> str:
    """A number with its noun: "1 prompt", "2,000 prompts".

    Args:
        several: the plural, if it does not just add an s
    """
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def seconds_left(seconds: float) -> str:
    """ "40 s", "12 min", "3.5 h"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def shortened(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def cited(method: type[Method]) -> str:
    """A decoder's source: "Leviathan et al. 2023, §2.3"; only numbered sections get the sign."""
    return f"{method.paper}, {'§' if method.section[0].isdigit() else ''}{method.section}"
