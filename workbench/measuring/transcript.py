"""The work of a decoder, round by round, turned into the plain data of a run."""

import math
from dataclasses import replace

from decoders import Round, Trial
from decoders.trace import KEPT
from workbench.measuring.detokenise import Pieces, Place
from workbench.runs.trace import Alternative, RoundRecord, TokenRecord, TrialRecord


def finite(value: float | None) -> float | None:
    """The number, or None if JSON cannot hold it (infinity, NaN)."""
    return value if value is not None and math.isfinite(value) else None


class Transcript:
    """The tokens and rounds of one request so far; `add` takes the library's rounds as they come.

    Args:
        pieces: turns tokens into text
        root: the last node of the prompt

    Attributes:
        tokens: the tokens of its output
        rounds: its rounds
    """

    def __init__(self, pieces: Pieces, root: int):
        self._pieces = pieces
        self._root = root
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
            alternatives = [
                Alternative(i, self._pieces.label(place, i), p) for i, p in t.alternatives
            ]
            self._kept[t.node] = TokenRecord(
                t.token, t.node, piece, t.fate.value, t.round, *numbers, finite(t.log_p),
                alternatives,
            )  # fmt: skip
        label = piece or self._pieces.label(place, t.token)
        return TrialRecord(
            t.node, t.parent, t.token, label, t.fate.value, *numbers, finite(t.log_p)
        )

    def finish(self, text: str) -> None:
        """Give the last token the text that no token finished, such as half a character.

        The pieces then add up to `text`.
        """
        shown = sum(len(t.text) for t in self.tokens)
        if self.tokens and len(text) > shown:
            last = self.tokens[-1]
            self.tokens[-1] = replace(last, text=last.text + text[shown:])
