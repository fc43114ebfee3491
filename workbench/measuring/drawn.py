"""The part of a draw that is kept: its tokens, and the beams of its first step."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import decoders
from decoders import Method
from decoders.settings import Law
from decoders.trace import KEPT
from workbench.measuring.detokenise import Pieces, Place
from workbench.runs.record import Sample
from workbench.runs.trace import Piece


class Texts:
    """The texts of many draws of one decoder; a beginning that several share is decoded once.

    Args:
        pieces: turns tokens into text
        method: the decoder
    """

    def __init__(self, pieces: Pieces, method: Method):
        self._extend = cache(pieces.extend)
        self._beams = method.law is not None and Law(method.law).tested == "first step"

    def of(self, sample: Sample, result: decoders.Result) -> Sample:
        beams = first_beams(result) if self._beams else []
        return replace(sample, pieces=self._pieces(result.tokens), beams=beams)

    def _pieces(self, tokens: Sequence[int]) -> list[Piece]:
        place, found = Place(), []
        for token in tokens:
            text, place = self._extend(place, token)
            found.append(Piece(token, text))
        return found


def first_beams(result: decoders.Result) -> list[int]:
    """The tokens of the beams after the first step, each as often as it was drawn."""
    root = len(result.prompt_tokens) - 1
    return (
        [t.token for t in result.rounds[0].trials if t.parent == root and t.fate in KEPT]
        if result.rounds
        else []
    )
