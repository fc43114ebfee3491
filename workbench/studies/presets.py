"""Settings and prompts by name."""

from collections.abc import Mapping
from typing import Any

from decoders import catalog
from workbench.studies.settings import Settings

SHOWN = tuple(catalog[name]() for name in ("greedy", "beam_search", "speculative", "mtad", "dsbd"))
OPENING = "stories"  # the page opens with it: it suits the pair that ships with this project
# Sampling, and nothing else: decoders and the number of tokens stay as they are. A decoder's
# defaults are those of its paper; a paper's preset adds its warping.
SETTINGS: dict[str, dict[str, Any]] = {
    OPENING: {"temperature": 0.7, "top_k": 0, "top_p": 0.9},
    "greedy (T=0)": {"temperature": 0.0, "top_k": 0, "top_p": 1.0},
    "MTAD paper": {"temperature": 1.0, "top_k": 20, "top_p": 0.9},
    "DSBD paper": {"temperature": 1.0, "top_k": 10, "top_p": 0.8},
    "sampling T=1": {"temperature": 1.0, "top_k": 0, "top_p": 1.0},
}

PROMPTS = {
    "A story": "Once upon a time, there was a little girl named Lily. She",
    "A friendship": "Tom and his dog Max lived near the forest. One morning they heard",
    "A dialogue": '"Can I play with you?" asked the small bear.',
    "A surprise": "Mia opened the big red box. Inside she found",
}


def described(name: str) -> str:
    """A preset with its settings: "MTAD paper: temperature 1, top-k 20, top-p 0.9"."""
    return f"{name}: {written(SETTINGS[name])}"


def written(settings: Mapping[str, Any]) -> str:
    """The sampling settings in words, without values that are not numbers or cut nothing off.

    Args:
        settings: shared settings by name; those left out have their default
    """
    temperature, top_k, top_p = (
        settings.get(name, getattr(Settings, name)) for name in ("temperature", "top_k", "top_p")
    )
    drawn = [
        ("temperature", temperature, True),
        ("top-k", top_k, temperature and top_k),
        ("top-p", top_p, temperature and top_p != 1),
    ]
    return ", ".join(
        f"{name} {value:g}"
        for name, value, named in drawn
        if named and isinstance(value, (int, float))
    )


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
