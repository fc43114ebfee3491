"""Settings and prompts by name."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from decoders import Warping, catalog
from workbench.studies.settings import Settings

SHOWN = tuple(catalog[name]() for name in ("greedy", "speculative", "mtad", "dsbd", "beam_search"))
OPENING = "stories"  # the page opens with it: it suits the pair that ships with this project
# Sampling, and nothing else: decoders and the number of tokens stay as they are. A decoder's
# defaults are those of its paper; a paper's preset adds its warping.
SETTINGS: dict[str, dict[str, Any]] = {
    name: asdict(warping)
    for name, warping in {
        OPENING: Warping(0.7, top_p=0.9),
        "greedy (T=0)": Warping(0.0),
        "MTAD paper": Warping(1.0, 20, 0.9),
        "DSBD paper": Warping(1.0, 10, 0.8),
        "sampling T=1": Warping(),
    }.items()
}
CUTS = {"top_k": "top-k", "top_p": "top-p", "min_p": "min-p", "top_n_sigma": "top-nσ"}

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


def described(name: str) -> str:
    """A preset with its settings: "MTAD paper: temperature 1, top-k 20, top-p 0.9"."""
    return f"{name}: {written(SETTINGS[name])}"


def written(settings: Mapping[str, Any]) -> str:
    """The sampling settings in words, without values that are not numbers or cut nothing off.

    Args:
        settings: shared settings by name; those left out have their default
    """
    usual = Warping()
    drawn = {"temperature": settings.get("temperature", usual.temperature)}
    for name, word in CUTS.items():
        value = settings.get(name, getattr(usual, name))
        if drawn["temperature"] and value != getattr(usual, name):
            drawn[word] = value
    last = len(drawn) > 1 and settings.get("temperature_last") is True
    words = [f"{word} {v:g}" for word, v in drawn.items() if isinstance(v, (int, float))]
    return ", ".join([*words, *(["temperature last"] if last else [])])


def asked(settings: Mapping[str, Any]) -> str:
    """The sampling settings and the seed: "temperature 0.7, top-p 0.9, seed 5".

    Args:
        settings: shared settings by name; those left out have their default
    """
    return f"{written(settings)}, seed {settings.get('seed', Settings.seed)}"


def named(settings: Mapping[str, Any]) -> str | None:
    """The preset that these settings follow, or None."""
    return next(
        (
            name
            for name, own in SETTINGS.items()
            if all(settings.get(n) == v for n, v in own.items())
        ),
        None,
    )
