"""The work of a decoder, turned into the plain data of a run: pieces of text, rounds and draws.

Of advice it is the chance of acceptance at each place of a text, read by both models.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from decoders import Method, ModelPair, Result, Round, Trial, read
from decoders.distribution import Whole
from decoders.settings import Law
from decoders.theory import acceptance
from decoders.trace import KEPT
from workbench.measuring.work import Work
from workbench.runs.record import Alternative, Piece, RoundRecord, Sample, TokenRecord, TrialRecord
from workbench.studies.settings import Settings

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
        """The label of each token of a text."""
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


def with_chances(sample: Sample, result: Result, work: Work) -> Sample:
    """The sample with the chance of each token; without them if its text was cut short."""
    if result.finished == "cancelled":
        return sample
    return replace(
        sample,
        chances=acceptances(work.pair, result.prompt_tokens, result.tokens, work.settings),
    )


def acceptances(
    pair: ModelPair, prompt: Sequence[int], text: Sequence[int], settings: Settings
) -> list[float]:
    """For each token of a text the chance that a draft there is accepted: 1 - TV(p, q), (tokens,).

    Args:
        prompt: token ids of the prompt
        text: token ids of the text

    Source:
        Leviathan et al. 2023 (arXiv 2211.17192), theorem 3.5, for the warped distributions.
    """
    places = read(pair, prompt, text, **settings.sampling)
    assert places.q is not None  # the study was admitted
    both = zip(places.p[:-1], places.q[:-1], strict=True)
    return [acceptance(Whole(p), Whole(q)) for p, q in both]
