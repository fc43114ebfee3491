"""Drafts from transformers' candidate generators: assisted generation under our rules."""

import inspect
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import torch
from transformers.generation.candidate_generator import (
    AssistedCandidateGenerator,
    CandidateGenerator,
)

from decoders.errors import InputError, ModelError, refuse
from decoders.methods.named import Combination
from decoders.methods.rules import LENIENCE, Parts, Tokenwise
from decoders.methods.sources import Draft, Drafting, Kind, Source, certain
from decoders.reading import Reading
from decoders.request import Ask, Request
from decoders.settings import setting


def proposes_from_text(owner: str, generator: Any) -> CandidateGenerator:
    """The generator, if it needs only the text so far.

    Raises:
        InputError: for any other, by name
    """
    name = type(generator).__name__
    refuse(
        (
            not isinstance(generator, CandidateGenerator),
            f"{owner}: a draft is a model or a candidate generator of transformers, not {name}.",
        ),
        (
            isinstance(generator, AssistedCandidateGenerator),
            f"{name} follows one text with its own model; give that model as the draft instead.",
        ),
    )
    _, *others = inspect.signature(generator.get_candidates).parameters.values()
    needed = [
        p.name
        for p in others
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    if generator.requires_model_outputs or needed:
        raise InputError(
            f"{name} drafts from outputs of the model ({', '.join(needed) or 'hidden states'}), "
            "which decoders do not pass on; take "
            "PromptLookupCandidateGenerator or another that needs the text alone."
        )
    return generator


GENERATOR = setting(None, "the candidate generator", read=proposes_from_text)


@dataclass(frozen=True)
class Proposals(Source):
    """A candidate generator's tokens, which count as certain."""

    name = "candidates"
    kind = Kind.CERTAIN

    generator: Any = GENERATOR

    def start(self, request: Request) -> Drafting:
        return Drafting(self._propose)

    def _propose(self, request: Request) -> Generator[Ask, list[Reading], Draft]:
        yield from ()  # asks no model
        if request.left < 2:
            return certain(request, ())
        text = request.tree.text(request.tip)
        candidates, _ = self.generator.get_candidates(torch.tensor([text]))
        tokens = candidates[0, len(text) :].tolist()
        if strange := [t for t in tokens if not 0 <= t < request.vocabulary]:
            raise ModelError(
                f"{type(self.generator).__name__} proposed the token {strange[0]}, which is "
                "outside the target's vocabulary."
            )
        return certain(request, tokens)


@dataclass(frozen=True)
class Candidates(Combination):
    """Speculative sampling of a candidate generator's proposals.

    Each token is accepted with probability p, else a token is drawn from the rest of p. So the
    output has the target's law wherever they come from.

    Attributes:
        generator: serves all requests of a batch, so it must be a function of the text alone
        lenience: as for `speculative`

    Raises:
        InputError: if the generator needs more than the text
    """

    name = "candidates"
    paper, section = "Leviathan et al. 2023", "2.3"
    summary = "Drafts come from a candidate generator of transformers; the target tests them."

    generator: Any = GENERATOR
    lenience: float = LENIENCE

    @property
    def parts(self) -> Parts:
        return Proposals(self.generator), Tokenwise(self.lenience)
