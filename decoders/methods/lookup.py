"""Drafts copied from the prompt, the output or reference documents.

Source:
    Yang et al. 2023 (LLMA, arXiv 2304.04487); Saxena 2023 (prompt lookup); EMS-SD
    (arXiv 2405.07542), section 4.1.
"""

from dataclasses import dataclass

from decoders.drafts.lookup import Lookup
from decoders.inputs import as_references
from decoders.methods.speculative import LENIENCE, Lenient
from decoders.request import Request
from decoders.settings import Decoding, setting

REFERENCES = setting(
    (), "reference documents, as texts, that drafts may copy from", read=as_references
)


@dataclass(frozen=True)
class PromptLookup(Lenient):
    name = "lookup"
    title = "Prompt lookup"
    paper, section = "Yang et al. 2023 (LLMA); Saxena 2023 (prompt lookup)", "EMS-SD 4.1"
    summary = (
        "Copies its drafts from the prompt, the output or reference documents: no draft model at "
        "all."
    )

    match: int = setting(
        2, "longest run of last tokens to look up; shorter runs are tried down to 1", low=1, high=16
    )
    copy: int = setting(7, "most tokens copied per round", low=1, high=64)
    references: tuple[str, ...] = REFERENCES
    prefer: str = setting(
        "last",
        "which of several matches to copy: the last, or the first in references, prompt and "
        "output, as LLMA does",
        choices=("last", "first"),
    )
    lenience: float = LENIENCE

    def decode(self, request: Request) -> Decoding:
        return self.speculate(
            request, Lookup(request, self.match, self.copy, self.prefer == "first").propose
        )
