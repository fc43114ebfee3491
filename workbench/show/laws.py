"""What a decoder claims about its text with given settings, in plain words, and which decoders write texts that differ by chance alone."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from decoders import Method, catalog
from workbench.studies.schemes import BASELINE

SAMPLING = "target"  # the law of plain sampling, in the words of the catalog
ITSELF = {"multinomial": "plain sampling", "beam_sampling": "beam sampling"}  # decoders that define a law


@dataclass(frozen=True)
class Claim:
    """chip, help  a few words, and a sentence;   law  a name that decoders of the same law share, None if it claims none"""

    chip: str
    help: str
    law: str | None


GREEDY = Claim("always the likeliest", "Each time the likeliest token; nothing is left to chance.", BASELINE)
SAME_AS_GREEDY = Claim("same as greedy", "At temperature 0 it writes exactly what greedy decoding writes.", BASELINE)
COMPARED = "The decoders that claim the same are compared with it."
CLAIMS = {
    SAMPLING: Claim(
        "same as plain sampling", "Its text is distributed exactly as if the large model had sampled each token alone.", SAMPLING
    ),
    "beam sampling": Claim(
        "same as beam sampling", "Its text is distributed exactly as that of beam sampling with the large model.", "beam sampling"
    ),
    "beam sampling per layer": Claim(
        "beam sampling, layer by layer",
        "Given how many beams a layer has, it draws them exactly as beam sampling with the large model does.",
        "beam sampling per layer",
    ),
}  # fmt: skip
SEARCH = Claim("search", "It looks for likely text; nothing is left to chance.", None)
OTHER = Claim(
    "changes the text", "It does not write as plain sampling would: it aims at speed or at likelier text.", None
)


def claim(method: Method, temperature: float) -> Claim:
    """What this decoder claims at this temperature."""
    if method.name == BASELINE:
        return GREEDY
    if method.law is None:
        return OTHER if method.uses_draft else SEARCH
    if method.law == SAMPLING and temperature == 0:
        return SAME_AS_GREEDY
    return Claim(ITSELF[method.name], COMPARED, method.law) if method.name in ITSELF else CLAIMS[method.law]


def claim_in(settings: Mapping[str, Any], decoder: str) -> Claim:
    """What a decoder claims with the settings of a run."""
    return claim(catalog[decoder](**settings.get(decoder, {})), settings.get("temperature", 1.0))


def by_chance(settings: Mapping[str, Any], decoders: Iterable[str]) -> list[list[str]]:
    """The decoders that share a law with another one and draw at random: their texts differ by chance alone."""
    if settings.get("temperature", 1.0) == 0:
        return []
    groups = defaultdict[str, list[str]](list)
    for decoder in decoders:
        if (law := claim_in(settings, decoder).law) is not None:
            groups[law].append(decoder)
    return [group for group in groups.values() if len(group) > 1]
