"""The chance of acceptance at each place of a text, read by both models."""

from collections.abc import Sequence
from dataclasses import replace

import decoders
from decoders import ModelPair
from decoders.distribution import Whole
from decoders.theory import acceptance
from workbench.measuring.work import Work
from workbench.runs.record import Sample
from workbench.studies.settings import Settings


def with_chances(sample: Sample, result: decoders.Result, work: Work) -> Sample:
    """The sample with the chance of each token; without them if its text was cut short."""
    if result.finished == "cancelled":
        return sample
    found = acceptances(work.pair, result.prompt_tokens, result.tokens, work.settings)
    return replace(sample, chances=found)


def acceptances(
    pair: ModelPair, prompt: Sequence[int], text: Sequence[int], settings: Settings
) -> list[float]:
    """For each token of a text the chance that a draft there is accepted: 1 - TV(p, q), (tokens,).

    Args:
        pair: the pair, with a draft model
        prompt: token ids of the prompt
        text: token ids of the text
        settings: the sampling

    Source:
        Leviathan et al. 2023 (arXiv 2211.17192), theorem 3.5, for the warped distributions.
    """
    places = decoders.read(pair, prompt, text, **settings.sampling)
    assert places.q is not None  # the study was admitted
    both = zip(places.p[:-1], places.q[:-1], strict=True)
    return [acceptance(Whole(p), Whole(q)) for p, q in both]
