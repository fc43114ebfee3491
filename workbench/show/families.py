"""Decoders in families, described for a reader who chooses among them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from decoders import Method, catalog
from decoders.settings import Law
from workbench.studies.settings import Served


@dataclass(frozen=True)
class Family:
    """Decoders with something in common.

    Attributes:
        name: id of the family
        title: the family in a few words
        help: the common trait of its decoders, in plain words
        decoders: their ids
    """

    name: str
    title: str
    help: str
    decoders: tuple[str, ...]


_OURS = (
    Family(
        "baselines", "The large model alone",
        "One pass for each token; the others are compared with these.",
        ("greedy", "multinomial", "beam_search", "beam_sampling"),
    ),
    Family(
        "exact", "Drafts, same text",
        "A small model guesses ahead. The text has exactly the distribution of plain sampling.",
        (
            "speculative", "match", "block", "traversal", "spectr", "multipath", "specinfer",
            "mcss", "best_first",
        ),
    ),
    Family(
        "other", "Likelier or other text",
        "They choose several tokens together, or keep guesses that are good enough.",
        (
            "mtad", "dsbd", "speculative_beam_search", "mtjd", "bild", "typical", "fly", "cascade",
            "ensemble",
        ),
    ),
    Family(
        "copying", "No draft model",
        "Guesses come from the text so far, copied or counted, or from what the large model said "
        "before. Same text as plain sampling.",
        ("lookup", "ngram", "suffix", "recycling"),
    ),
)  # fmt: skip


def _family(method: type[Method]) -> str:
    """The family of a decoder that another package adds."""
    if method.law != Law.TARGET:
        return "other"
    return "exact" if method.uses_draft else "copying"


def served(engines: Iterable[str]) -> Family:
    """Engines by their names, beside the families of decoders."""
    return Family(
        "engines", "Engines",
        "Servers that whoever runs this page has named. They are asked for the same prompt and "
        "sampling, and timed from outside.",
        tuple(Served(name).name for name in engines),
    )  # fmt: skip


_NAMED = {name for family in _OURS for name in family.decoders}
_ADDED = {name: _family(method) for name, method in catalog.items() if name not in _NAMED}
FAMILIES = tuple(
    replace(
        family,
        decoders=(
            *family.decoders,
            *(name for name, where in _ADDED.items() if where == family.name),
        ),
    )
    for family in _OURS
)
