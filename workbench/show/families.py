"""Decoders in families: what a reader must know to choose among them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """title, help  what its decoders have in common, in plain words;   decoders  their ids"""

    name: str
    title: str
    help: str
    decoders: tuple[str, ...]


FAMILIES = (
    Family(
        "baselines", "The large model alone", "One pass for each token; what the others are compared with.",
        ("greedy", "multinomial", "beam_search", "beam_sampling"),
    ),
    Family(
        "exact", "Drafts, same text", "A small model guesses ahead. The text is distributed exactly as plain sampling.",
        ("speculative", "spectr", "specinfer", "mcss"),
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
