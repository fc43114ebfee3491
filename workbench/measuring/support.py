"""The drawn texts that the target never writes.

Top-k or top-p gives one of their first tokens probability 0.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

import decoders
from decoders import ModelPair, Places
from decoders.warp import Warping, warp
from workbench.measuring.detokenise import Pieces, Place
from workbench.runs.cells import Tokens
from workbench.runs.draws import beginnings
from workbench.runs.record import Run
from workbench.runs.trace import Prefix
from workbench.studies.study import Study

AT_ONCE = 64  # texts whose tokens are in one pass
# Nats by which passes of different shapes may round a logit: an exact decoder may draw a token that
# is nearer to the edge than that.
FINE, ROUGH = 0.05, 0.5


def cut_off(logits: torch.Tensor, token: int, warping: Warping, noise: float) -> bool:
    """Whether the warping gives the token probability 0, whatever the rounding.

    If each logit is off by up to `noise` nats, two logits lie up to twice as far apart, and so do
    the logarithms of two sets' masses.

    Args:
        logits: (V,)
        token: the token
        warping: the warping
        noise: nats
    """
    raised = logits.double().clone()
    raised[token] += 2 * noise
    odds = (1 - warping.top_p) / warping.top_p * math.exp(-2 * noise / warping.temperature)
    return bool(warp(raised, replace(warping, top_p=1 / (1 + odds)))[token] == 0)


def impossible(pair: ModelPair, study: Study, ids: Sequence[int], run: Run) -> list[Prefix]:
    """The shortest beginnings of the run's draws that the target never writes, with probability 0.

    Only top-k and top-p cut tokens off. Beginnings that the run already knows are left out.

    Args:
        pair: the pair
        study: the study
        ids: the token ids of its prompt
        run: its draws

    Raises:
        ModelError: if the model fails
    """
    settings = study.settings
    if settings.temperature == 0 or not (settings.top_k or settings.top_p < 1):
        return []
    known = {tuple(prefix.tokens) for prefix in run.exact if prefix.p == 0}
    texts = sorted(
        text
        for text in beginnings(run)
        if not any(text[: i + 1] in known for i in range(len(text)))
    )
    warping = Warping(settings.temperature, settings.top_k, settings.top_p)
    noise = FINE if torch.finfo(pair.target.dtype).bits >= 32 else ROUGH
    pieces, found = Pieces(pair.tokenizer), dict[Tokens, Prefix]()
    for i in range(0, len(texts), AT_ONCE):
        some = texts[i : i + AT_ONCE]
        read = decoders.read(
            pair, list(ids), [list(text) for text in some], **settings.sampling, draft=False
        )
        for text, places in zip(some, read, strict=True):
            if written := _never(text, places, warping, noise):
                found[written] = Prefix(list(written), _label(pieces, written), 0.0)
    return list(found.values())


def _never(text: Tokens, places: Places, warping: Warping, noise: float) -> Tokens:
    """The shortest beginning of a text that the target never writes; () if there is none."""
    for i, token in enumerate(text):
        if places.p[i, token] == 0 and cut_off(places.logits[i], token, warping, noise):
            return text[: i + 1]
    return ()


def _label(pieces: Pieces, tokens: Tokens) -> str:
    place = Place()
    for token in tokens[:-1]:
        place = pieces.extend(place, token)[1]
    return pieces.label(place, tokens[-1])
