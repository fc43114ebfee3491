"""The exact law that draws are compared with.

It is a tree of the prefixes that are likely enough to be counted, read layer by layer, and the
drawn texts that the target never writes: the warping gives one of their first tokens probability 0.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from decoders import ModelPair, read
from decoders.distribution import Warping, deviation, top, warp
from workbench.measuring.transcript import Pieces, Place
from workbench.runs.draws import DEPTH, KNOWN, Tokens, beginnings
from workbench.runs.record import Prefix, Run
from workbench.studies.study import Study

AT_ONCE = 64  # texts whose tokens are in one pass
# Nats by which passes of different shapes may round a logit: an exact decoder may draw a token that
# is nearer to the edge than that.
FINE, ROUGH = 0.05, 0.5


def exact(pair: ModelPair, study: Study, ids: Sequence[int]) -> list[Prefix]:
    """The prefixes of up to DEPTH tokens that begin at least KNOWN of all texts, parents first.

    At temperature 0, where nothing is random, there are none.

    Args:
        ids: the token ids of its prompt

    Raises:
        ModelError: if the model fails
    """
    settings = study.settings
    if settings.temperature == 0:
        return []
    pieces, prefixes = Pieces(pair.tokenizer), list[Prefix]()
    layer = [(Prefix([], "", 1.0), Place())]
    ends = pair.end_tokens
    for _ in range(min(DEPTH, settings.max_new_tokens)):
        texts = [prefix.tokens for prefix, _ in layer]
        after = read(pair, ids, texts, **settings.sampling, draft=False)
        layer = [
            (
                Prefix([*prefix.tokens, token], pieces.label(place, token), p),
                pieces.extend(place, token)[1],
            )
            for (prefix, place), places in zip(layer, after, strict=True)
            for token, p in _likely(prefix.p, places.p[-1])
        ]
        prefixes += [prefix for prefix, _ in layer]
        layer = [(prefix, place) for prefix, place in layer if prefix.tokens[-1] not in ends]
        if not layer:
            break
    return prefixes


def _likely(before: float, p: torch.Tensor) -> Iterator[tuple[int, float]]:
    """The tokens that continue a prefix in at least KNOWN of all texts, likeliest first.

    Args:
        p: (V,) the probabilities of the next token

    Yields:
        (token, probability of the longer prefix)
    """
    masses, ids = top(p, int(before / KNOWN))  # there cannot be more
    for token, mass in zip(ids.tolist(), masses.tolist(), strict=True):
        if before * mass >= KNOWN:
            yield token, min(1.0, before * mass)


def cut_off(logits: torch.Tensor, token: int, warping: Warping, noise: float) -> bool:
    """Whether the warping gives the token probability 0, whatever the rounding.

    If each logit is off by up to `noise` nats, two logits lie up to twice as far apart, and so do
    the logarithms of two sets' masses. A standard deviation is off by up to `noise`.

    Args:
        logits: (V,)
        noise: nats
    """
    scale = 1.0 if warping.temperature_last else warping.temperature
    odds = (1 - warping.top_p) / warping.top_p * math.exp(-2 * noise / scale)
    # Which tokens top-nσ leaves to top-p depends on rounding, so each is asked alone.
    others = replace(warping, top_p=1 / (1 + odds), top_n_sigma=0.0)
    if n := warping.top_n_sigma:
        below = logits.double().max() - logits[token] - 2 * noise
        if below > n * (deviation(logits.double()) + noise):
            return True
    raised = logits.double().clone()
    raised[token] += 2 * noise
    return bool(warp(raised, others)[token] == 0)


def impossible(pair: ModelPair, study: Study, ids: Sequence[int], run: Run) -> list[Prefix]:
    """The shortest beginnings of the run's draws that the target never writes, with probability 0.

    Only a warping that cuts tokens off rules any out. Beginnings that the run already knows are
    left out.

    Args:
        ids: the token ids of its prompt

    Raises:
        ModelError: if the model fails
    """
    settings, warping = study.settings, Warping.of(study.settings)
    if settings.temperature == 0 or not warping.cuts:
        return []
    known = {tuple(prefix.tokens) for prefix in run.exact if prefix.p == 0}
    texts = sorted(
        text
        for text in beginnings(run)
        if not any(text[: i + 1] in known for i in range(len(text)))
    )
    noise = FINE if torch.finfo(pair.target.dtype).bits >= 32 else ROUGH
    pieces, outside = Pieces(pair.tokenizer), dict[Tokens, Prefix]()
    for i in range(0, len(texts), AT_ONCE):
        some = texts[i : i + AT_ONCE]
        after = read(
            pair, list(ids), [list(text) for text in some], **settings.sampling, draft=False
        )
        for text, places in zip(some, after, strict=True):
            for place, token in enumerate(text):
                if places.p[place, token] == 0 and cut_off(
                    places.logits[place], token, warping, noise
                ):
                    never = text[: place + 1]
                    outside[never] = Prefix(list(never), pieces.labels(never)[-1], 0.0)
                    break
    return list(outside.values())
