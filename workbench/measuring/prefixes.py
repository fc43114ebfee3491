"""The exact probabilities of a text's first tokens.

They form a tree of the prefixes that are likely enough to be counted, read layer by layer.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

import decoders
from decoders import ModelPair
from decoders.warp import top
from workbench.measuring.detokenise import Pieces, Place
from workbench.runs.cells import DEPTH, KNOWN
from workbench.runs.trace import Prefix
from workbench.studies.study import Study

log = logging.getLogger(__name__)


def exact(pair: ModelPair, study: Study, ids: Sequence[int]) -> list[Prefix]:
    """The prefixes of up to DEPTH tokens that begin at least KNOWN of all texts, parents first.

    At temperature 0, where nothing is random, there are none.

    Args:
        pair: the pair
        study: the study
        ids: the token ids of its prompt

    Raises:
        ModelError: if the model fails
    """
    settings = study.settings
    if settings.temperature == 0:
        return []
    pieces, found = Pieces(pair.tokenizer), list[Prefix]()
    layer = [(Prefix([], "", 1.0), Place())]
    for _ in range(min(DEPTH, settings.max_new_tokens)):
        texts = [prefix.tokens for prefix, _ in layer]
        after = decoders.read(pair, ids, texts, **settings.sampling, draft=False)
        layer = [
            (
                Prefix([*prefix.tokens, token], pieces.label(place, token), p),
                pieces.extend(place, token)[1],
            )
            for (prefix, place), read in zip(layer, after, strict=True)
            for token, p in _likely(prefix.p, read.p[-1])
        ]
        found += [prefix for prefix, _ in layer]
        layer = [
            (prefix, place) for prefix, place in layer if prefix.tokens[-1] not in pair.end_tokens
        ]
        if not layer:
            break
    return found


def _likely(before: float, p: torch.Tensor) -> Iterator[tuple[int, float]]:
    """The tokens that continue a prefix in at least KNOWN of all texts, likeliest first.

    Args:
        before: the probability of the prefix
        p: (V,) the probabilities of the next token

    Yields:
        (token, probability of the longer prefix)
    """
    masses, ids = top(p, int(before / KNOWN))  # there cannot be more
    for token, mass in zip(ids.tolist(), masses.tolist(), strict=True):
        if before * mass >= KNOWN:
            yield token, min(1.0, before * mass)


def attempted(ask: Callable[..., list[Prefix]], *arguments: Any) -> list[Prefix]:
    """The prefixes that `ask` gives; [] if it fails: the draws are shown all the same."""
    try:
        return ask(*arguments)
    except Exception:
        log.exception("the exact probabilities of draws failed")
        return []
