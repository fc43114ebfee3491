"""The claims of decoders about their text, and the rules by which they keep drafts, in words.

Decoders of one law write texts that differ by chance alone. Judgements of one draft have a row for
each rule, or for rules of which the same is true.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from decoders import Judgement, Method, catalog
from decoders.settings import Criterion, Law
from workbench.runs.record import Server
from workbench.studies.settings import Served, method_of
from workbench.studies.study import BASELINE

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

    @property
    def exact(self) -> bool:
        return self.law in (Law.TARGET, BASELINE)


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
    Law.BEAM_SEARCH: Claim(
        "the same beams as beam search",
        "Its beams, their scores and its text are exactly those of beam search with the large "
        "model; nothing is left to chance.",
        None,
    ),
}
MIXED = (
    "Its text is not the large model's: it has exactly the distribution of {} of both models. With "
    "a head in the draft model's place, it has none that is known."
)
CLAIMS |= {
    Law.CASCADE: Claim("a mixture of both models", MIXED.format("a mixture, the cascade’s,"), None),
    Law.ENSEMBLE: Claim("a mixture of both models", MIXED.format("the weighted mean"), None),
}
ASKED = Claim(
    "another engine",
    "It was asked for the same prompt and the same sampling as the decoders here. Whether it draws "
    "from the large model's distribution is what `decoding-workbench canary` tests.",
    None,
)
SEARCH = Claim("search", "It looks for likely text; nothing is left to chance.", None)
OTHER = Claim(
    "changes the text",
    "Its text is not that of plain sampling: it aims at speed or at likelier text.",
    None,
)


def claim(method: Method, temperature: float) -> Claim:
    if method.name == BASELINE:
        return GREEDY
    if isinstance(method, Served):
        return ASKED
    if method.law is None:
        return OTHER if method.uses_draft or hasattr(method, "parts") else SEARCH
    if method.law == Law.TARGET and temperature == 0:
        return SAME_AS_GREEDY
    if method.name in ITSELF:
        return Claim(ITSELF[method.name], COMPARED, method.law)
    return CLAIMS[method.law]


def served(server: Server) -> Claim:
    name = " ".join(filter(None, (server.kind, server.version)))
    model = f"It serves “{server.model}”. " if server.model else ""
    return Claim(
        f"{name}, over HTTP",
        f"{model}It is measured from outside, from the request to the end of its answer. "
        f"{ASKED.help}",
        None,
    )


def claim_in(settings: Mapping[str, Any], decoder: str) -> Claim:
    return claim(method_of(decoder, settings.get(decoder, {})), settings.get("temperature", 1.0))


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


# ---- the rule by which a draft token was kept or refused, with its threshold

Rule = dict[str, Any]  # the fields of a Criterion
GUESSED = "speculative_beam_search"


def rule(method: Method) -> Rule:
    says = (
        "Kept if its beam is one of those that beam search keeps here: the likeliest under the "
        "large model alone."
    )
    own = Criterion(says) if method.name == GUESSED else method.criterion
    return own._asdict()


def head(environment: Mapping[str, Any], method: Method) -> dict[str, Any]:
    """What the head reads that a decoder drafts with, for the card of a token.

    Args:
        environment: of the run
        method: the decoder

    Returns:
        `reads` and `layers`; {} if it drafts with no head
    """
    beside = environment.get("head") if method.uses_head else None
    drafts = method.uses_head or method.uses_draft
    facts = (beside or environment.get("draft")) if drafts else None
    # Anybody's file may say anything there.
    known = facts if isinstance(facts, Mapping) else {}
    return {name: known[name] for name in ("reads", "layers") if name in known}


Row = dict[str, Any]


@cache
def titles() -> dict[str, str]:
    """From each rule to the title of the decoder that is known by it."""
    # The first of several comes last, and stays.
    methods = [method() for method in catalog.values()][::-1]
    return {getattr(m, "parts", (None, m))[1].name: m.title for m in methods}


def law(judgement: Judgement, headed: bool) -> str:
    """Whether the rule keeps the target's law for drafts drawn from q, in a word or two."""
    if judgement.rule.law is None or (headed and judgement.rule.lawless):
        return "not exact"
    return "exact" if judgement.rule.law == Law.TARGET else "exact for a mixture"


def grouped(
    judgements: Sequence[Judgement], names: Sequence[str], own: int = 0, headed: bool = False
) -> list[Row]:
    """The rows of a table.

    Args:
        judgements: the judgements
        names: the draft's tokens in words
        own: how many of the first ones are of the decoder whose draft it is
        headed: whether a head drafted it

    Returns:
        for each row: rules: their names, title: their titles, law, kept: number of tokens kept,
        mean: that over all random numbers, chances: for each token the chance that it is kept,
        why: a sentence, own: whether it is the decoder's own
    """
    rows: dict[str, Row] = {}
    for place, judgement in enumerate(judgements):
        said = {
            "law": law(judgement, headed),
            "kept": judgement.kept,
            "mean": round(judgement.expected, 9),
            "chances": [round(chance, 9) for chance in judgement.chances],
            "why": judgement.why(names),
        }
        row = rows.setdefault(repr(said), {"rules": [], **said, "own": place < own})
        row["rules"].append(judgement.rule.name)
    for row in rows.values():
        row["title"] = ", ".join(titles().get(rule, rule) for rule in row["rules"])
    return list(rows.values())
