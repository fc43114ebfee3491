"""The claims of decoders about their text, in plain words.

Decoders of one law write texts that differ by chance alone.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from decoders import Method, catalog
from decoders.settings import Law
from workbench.studies.schemes import BASELINE

# Decoders that define a law.
ITSELF = {"multinomial": "plain sampling", "beam_sampling": "beam sampling"}


@dataclass(frozen=True)
class Claim:
    """A decoder's claim.

    Attributes:
        chip: a few words
        help: a sentence
        law: a name that decoders of the same law share, None if it claims none
    """

    chip: str
    help: str
    law: str | None


GREEDY = Claim(
    "always the likeliest",
    "It takes the likeliest token each time; nothing is left to chance.",
    BASELINE,
)
SAME_AS_GREEDY = Claim(
    "same as greedy", "At temperature 0 its text is exactly that of greedy decoding.", BASELINE
)
COMPARED = "Decoders with the same claim are compared with it."
CLAIMS = {
    Law.TARGET: Claim(
        "same as plain sampling",
        "Its text is distributed exactly as if the large model had sampled each token alone.",
        Law.TARGET,
    ),
    Law.BEAM_SAMPLING: Claim(
        "same as beam sampling",
        "Its text is distributed exactly as that of beam sampling with the large model.",
        Law.BEAM_SAMPLING,
    ),
    Law.PER_LAYER: Claim(
        "beam sampling, layer by layer",
        "For a given number of beams in a layer, it draws them exactly as beam sampling with the "
        "large model does.",
        Law.PER_LAYER,
    ),
}
SEARCH = Claim("search", "It looks for likely text; nothing is left to chance.", None)
OTHER = Claim(
    "changes the text",
    "Its text is not that of plain sampling: it aims at speed or at likelier text.",
    None,
)


def claim(method: Method, temperature: float) -> Claim:
    """The claim of this decoder at this temperature."""
    if method.name == BASELINE:
        return GREEDY
    if method.law is None:
        return OTHER if method.uses_draft else SEARCH
    if method.law == Law.TARGET and temperature == 0:
        return SAME_AS_GREEDY
    return (
        Claim(ITSELF[method.name], COMPARED, method.law)
        if method.name in ITSELF
        else CLAIMS[method.law]
    )


def claim_in(settings: Mapping[str, Any], decoder: str) -> Claim:
    """The claim of a decoder with the settings of a run."""
    return claim(catalog[decoder](**settings.get(decoder, {})), settings.get("temperature", 1.0))


def by_chance(settings: Mapping[str, Any], decoders: Iterable[str]) -> list[list[str]]:
    """The decoders that share a law and draw at random, in groups.

    The texts of a group differ by chance alone.
    """
    if settings.get("temperature", 1.0) == 0:
        return []
    groups = defaultdict[str, list[str]](list)
    for decoder in decoders:
        if (law := claim_in(settings, decoder).law) is not None:
            groups[law].append(decoder)
    return [group for group in groups.values() if len(group) > 1]
