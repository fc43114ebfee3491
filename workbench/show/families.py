"""Decoders in families: what a reader must know to choose among them."""

from dataclasses import dataclass, replace

from decoders import Method, catalog


@dataclass(frozen=True)
class Family:
    """title, help  what its decoders have in common, in plain words;   decoders  their ids"""

    name: str
    title: str
    help: str
    decoders: tuple[str, ...]


_OURS = (
    Family(
        "baselines", "The large model alone", "One pass for each token; what the others are compared with.",
        ("greedy", "multinomial", "beam_search", "beam_sampling"),
    ),
    Family(
        "exact", "Drafts, same text", "A small model guesses ahead. The text is distributed exactly as plain sampling.",
        ("speculative", "block", "spectr", "specinfer", "mcss"),
    ),
    Family(
        "other", "Likelier or other text", "They choose several tokens together, or keep guesses that are good enough.",
        ("mtad", "dsbd", "mtjd", "bild", "typical"),
    ),
    Family(
        "copying", "No draft model", "Guesses are copied or counted from the text so far. Same text as plain sampling.",
        ("lookup", "ngram"),
    ),
)  # fmt: skip


def _family(method: type[Method]) -> str:
    """Where a decoder belongs that none of these names: one that another package adds."""
    if method.law != "target":
        return "other"
    return "exact" if method.uses_draft else "copying"


_NAMED = {name for family in _OURS for name in family.decoders}
_ADDED = {name: _family(method) for name, method in catalog.items() if name not in _NAMED}
FAMILIES = tuple(
    replace(family, decoders=(*family.decoders, *(name for name, where in _ADDED.items() if where == family.name)))
    for family in _OURS
)
