"""The work of a decoder as plain data of a run, and the exact law that draws are compared with.

The law is a tree of the prefixes that are likely enough to be counted, read layer by layer, and the
drawn texts that the target never writes, because the warping gives one of their first tokens
probability 0.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from decoders import Method, ModelPair, Result, Round, Trial, read
from decoders.distribution import Warping, deviation, top, warp
from decoders.settings import Law
from decoders.trace import KEPT
from workbench.runs.draws import DEPTH, KNOWN, Tokens, beginnings
from workbench.runs.record import (
    Alternative,
    Piece,
    Prefix,
    RoundRecord,
    Run,
    Sample,
    TokenRecord,
    TrialRecord,
)
from workbench.studies.study import Study

UNFINISHED = "\ufffd"  # tokenizers decode the first bytes of a character to this


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a text.

    Attributes:
        context: the tokens that a decoding must start with to come out as in the whole text: a
            tokenizer may drop a leading space
        unshown: the tokens after them that have not shown any text yet
    """

    context: tuple[int, ...] = ()
    unshown: tuple[int, ...] = ()


class Pieces:
    """The text that each token adds, for any tokenizer that decodes.

    Places are values, so a tree of tokens has one at each node.

    Args:
        tokenizer: the tokenizer; None gives no text
    """

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer

    def decode(self, tokens: tuple[int, ...], special: bool = False) -> str:
        if self._tokenizer is None or not tokens:
            return ""
        return self._tokenizer.decode(
            list(tokens), skip_special_tokens=not special, clean_up_tokenization_spaces=False
        )

    def extend(self, place: Place, token: int) -> tuple[str, Place]:
        """Add a token at a place.

        Of a character that spans several tokens, the last one gets the whole and the others get "".

        Returns:
            (piece, place): the piece that the token adds, and the place after it
        """
        unshown = (*place.unshown, token)
        text = self.decode(place.context + unshown)
        piece = text[len(self.decode(place.context)) :]
        if not piece or text.endswith(UNFINISHED):
            return "", Place(place.context, unshown)
        return piece, Place(unshown)

    def label(self, place: Place, token: int) -> str:
        """A label for a token at a place: its piece, or if it has none, the token decoded alone."""
        return self.extend(place, token)[0] or self.decode((token,), special=True)

    def labels(self, tokens: Sequence[int]) -> list[str]:
        place, labels = Place(), list[str]()
        for token in tokens:
            labels.append(self.label(place, token))
            _, place = self.extend(place, token)
        return labels


class Texts:
    """The texts of many draws of one decoder; a beginning that several share is decoded once."""

    def __init__(self, pieces: Pieces, method: Method):
        self._extend = cache(pieces.extend)
        self._beams = method.law is not None and Law(method.law).tested == "first step"

    def of(self, sample: Sample, result: Result) -> Sample:
        place, pieces, root = Place(), list[Piece](), len(result.prompt_tokens) - 1
        for token in result.tokens:
            text, place = self._extend(place, token)
            pieces.append(Piece(token, text))
        # The tokens of the beams after the first step, each as often as it was drawn.
        first = result.rounds[0].trials if self._beams and result.rounds else []
        beams = [t.token for t in first if t.parent == root and t.fate in KEPT]
        return replace(sample, pieces=pieces, beams=beams)


def finite(value: float | None) -> float | None:
    """The number, or None if JSON cannot hold it (infinity, NaN)."""
    return value if value is not None and math.isfinite(value) else None


class Transcript:
    """The tokens and rounds of one request so far; `add` takes the library's rounds as they come.

    Attributes:
        tokens: the tokens of its output
        rounds: its rounds
    """

    def __init__(self, pieces: Pieces, root: int):
        self._pieces = pieces
        self._places = {root: Place()}
        self._kept: dict[int, TokenRecord] = {}
        self.tokens: list[TokenRecord] = []
        self.rounds: list[RoundRecord] = []

    def add(self, entry: Round) -> None:
        self.rounds.append(
            RoundRecord(
                entry.index, [self._trial(t) for t in entry.trials], entry.keep, list(entry.nodes),
                entry.provisional, entry.draft_seconds, entry.verify_seconds, entry.target_calls,
                entry.draft_calls,
            )
        )  # fmt: skip
        self.tokens[entry.keep :] = [self._kept[n] for n in entry.nodes]

    def _trial(self, t: Trial) -> TrialRecord:
        place = self._places.get(t.parent, Place())
        piece, self._places[t.node] = self._pieces.extend(place, t.token)
        numbers = (finite(t.p), finite(t.q), finite(t.accept_probability), t.u)
        if t.fate in KEPT:
            self._kept[t.node] = TokenRecord(
                t.token, t.node, piece, t.fate.value, t.round, *numbers, finite(t.log_p),
                [Alternative(i, self._pieces.label(place, i), p) for i, p in t.alternatives],
            )  # fmt: skip
        return TrialRecord(
            t.node, t.parent, t.token, piece or self._pieces.label(place, t.token), t.fate.value,
            *numbers, finite(t.log_p),
        )  # fmt: skip

    def finish(self, text: str) -> None:
        """Give the last token the text that no token finished, such as half a character.

        The pieces then add up to `text`.
        """
        shown = sum(len(t.text) for t in self.tokens)
        if self.tokens and len(text) > shown:
            last = self.tokens[-1]
            self.tokens[-1] = replace(last, text=last.text + text[shown:])


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
