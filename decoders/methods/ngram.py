"""Drafts from counts of tokens and pairs.

Source:
    Leviathan et al. 2023 (arXiv 2211.17192), section 3.6.
"""

from dataclasses import dataclass
from functools import partial

from decoders.drafts.ngram import NGram
from decoders.drafts.tree import tree
from decoders.methods.lookup import REFERENCES
from decoders.methods.speculative import LENIENCE, Lenient
from decoders.request import Request
from decoders.settings import Decoding, setting


@dataclass(frozen=True)
class NGramDrafts(Lenient):
    name = "ngram"
    title = "N-gram drafts"
    paper, section = "Leviathan et al. 2023", "3.6"
    summary = (
        "Drafts from counts of words and pairs seen so far: no draft model, at almost no cost."
    )

    order: str = setting(
        "bigram",
        "the units counted: pairs of tokens, or single ones",
        choices=("bigram", "unigram"),
    )
    draft_length: int = setting(3, "draft tokens per round (gamma)", low=1, high=64)
    smoothing: float = setting(1.0, "counts added for unseen tokens and pairs", low=1e-6, high=1e6)
    references: tuple[str, ...] = REFERENCES
    lenience: float = LENIENCE

    def decode(self, request: Request) -> Decoding:
        predict = NGram(request, self.smoothing, self.order == "bigram").predict
        return self.speculate(
            request, partial(tree, expansion=(1,) * self.draft_length, predict=predict)
        )
