"""Invisible characters as visible ones."""

import unicodedata

NEWLINES = {"\n": "⏎", "\t": "⇥"}


def visible(text: str) -> str:
    """The text with glyphs for characters that vanish, break the line or turn its direction."""
    return "".join(_glyph(c) for c in text)


def _glyph(c: str) -> str:
    if c in NEWLINES:
        return NEWLINES[c]
    kind = unicodedata.category(c)
    if kind == "Cc":
        return chr(0x2400 + ord(c)) if ord(c) < 32 else "\u2421"
    return (
        "¤"
        if (kind == "Cf" and unicodedata.bidirectional(c) not in ("BN", "L"))
        or c in "\u200e\u200f\u061c"
        else c
    )
