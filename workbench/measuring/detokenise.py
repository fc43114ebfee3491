"""Tokens to text, one by one, so that a character that spans several tokens comes out whole."""

from dataclasses import dataclass
from typing import Any

UNFINISHED = "\ufffd"  # what tokenizers decode the first bytes of a character to


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a text: the tokens that a decoding must start with to come out as in the whole text (a tokenizer may drop a leading
    space), and after them those that have not shown any text yet."""

    context: tuple[int, ...] = ()
    unshown: tuple[int, ...] = ()


class Pieces:
    """The text that each token adds, for any tokenizer that decodes: places are values, so a tree of tokens has one at each node."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer

    def decode(self, tokens: tuple[int, ...], special: bool = False) -> str:
        if self._tokenizer is None or not tokens:
            return ""
        return self._tokenizer.decode(list(tokens), skip_special_tokens=not special, clean_up_tokenization_spaces=False)

    def extend(self, place: Place, token: int) -> tuple[str, Place]:
        """The piece that `token` adds at `place`, and the place after it. Of a character that spans several tokens the last one
        gets it whole and the others get ""."""
        unshown = (*place.unshown, token)
        text = self.decode(place.context + unshown)
        piece = text[len(self.decode(place.context)) :]
        if not piece or text.endswith(UNFINISHED):
            return "", Place(place.context, unshown)
        return piece, Place(unshown)

    def label(self, place: Place, token: int) -> str:
        """What to show for `token` alone at `place`: its piece, or if it has none, the token decoded alone."""
        return self.extend(place, token)[0] or self.decode((token,), special=True)
