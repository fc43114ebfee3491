"""Tokens to text, one by one, so that a character of several tokens comes out whole."""

from dataclasses import dataclass
from typing import Any

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
