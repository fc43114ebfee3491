"""The looks of decoders and their families, of the fates of tokens, and of unseen characters.

A decoder has the same colour and mark in every chart, on a light or a dark ground; a fate has the
same look in the panels, the reports and the terminal.
"""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple
from zlib import crc32

from decoders import Fate, Method, catalog
from decoders.settings import Law
from workbench.runs.record import UNTOLD
from workbench.studies.settings import Served

# After Okabe and Ito (2008), with a darker amber and another blue in place of sky: each colour has
# a contrast of 3 with white and with dark slate.
COLOURS = ("#1F7FBF", "#D55E00", "#009E73", "#C46A9B", "#B08000", "#8E6FD6", "#808691")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")
# Plotly's name of each mark, and its outline in a square from -1 to 1.
MARKS = {
    "circle": "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0z",
    "square": "M-.9-.9h1.8v1.8h-1.8z",
    "diamond": "M0-1.15 1.15 0 0 1.15-1.15 0z",
    "triangle-up": "M0-1.1 1.1.85h-2.2z",
    "cross": "M-.4-1h.8v.6h.6v.8h-.6v.6h-.8v-.6h-.6v-.8h.6z",
    "x": "M-1-.6-.6-1 0-.4.6-1 1-.6.4 0 1 .6.6 1 0 .4-.6 1-1 .6-.4 0z",
    "triangle-down": "M0 1.1 1.1-.85h-2.2z",
    "star": "M0-1.2.35-.4 1.15-.37.52.15.73.95 0 .5-.73.95-.52.15-1.15-.37-.35-.4z",
    "pentagon": "M0-1.05 1-.3.62.9h-1.24L-1-.3z",
    "hexagon": "M-.55-.95h1.1L1.1 0 .55.95h-1.1L-1.1 0z",
    "triangle-right": "M1.1 0-.85 1.1v-2.2z",
    "hourglass": "M-.9-1h1.8L.25 0 .9 1H-.9L-.25 0z",
    "triangle-left": "M-1.1 0 .85 1.1v-2.2z",
    "bowtie": "M-1-.9 0-.25 1-.9V.9L0 .25-1 .9z",
    "diamond-wide": "M-1.4 0 0-.7 1.4 0 0 .7z",
    "star-diamond": "M0-1.25 .4-.4 1.25 0 .4.4 0 1.25-.4.4-1.25 0-.4-.4z",
    "octagon": "M-.42-1h.84L1-.42v.84L.42 1h-.84L-1 .42v-.84z",
    "diamond-tall": "M0-1.4.7 0 0 1.4-.7 0z",
    "star-square": "M-1.1-1.1 0-.6 1.1-1.1.6 0 1.1 1.1 0 .6-1.1 1.1-.6 0z",
    "star-triangle-up": "M0-1.25.35.2 1.2.9 0 .6-1.2.9-.35.2z",
    "star-triangle-down": "M0 1.25.35-.2 1.2-.9 0-.6-1.2-.9-.35-.2z",
    "hexagram": "M0-1.2.35-.6h.7L.7 0l.35.6h-.7L0 1.2-.35.6h-.7L-.7 0l-.35-.6h.7z",
    "triangle-ne": "M-.95-.95H.95V.95z",
    "triangle-sw": "M.95.95H-.95V-.95z",
    "triangle-nw": "M-.95.95V-.95H.95z",
    "triangle-se": "M.95-.95V.95H-.95z",
}


HOLLOW = "-open"  # Plotly's ending for a mark that is not filled


class Look(NamedTuple):
    """The look of one line, which is unlike that of others with and without colours."""

    colour: str
    dash: str
    symbol: str


def look(i: int) -> Look:
    """The look of the i-th line.

    Twice as many as there are marks have different ones, the second time hollow; colours and dashes
    come again.
    """
    again, turn, marks = i // len(COLOURS), i // len(MARKS), list(MARKS)
    symbol = marks[i % len(marks)] + HOLLOW * (turn % 2)
    return Look(COLOURS[i % len(COLOURS)], DASHES[(i + again) % len(DASHES)], symbol)


def look_of(decoder: str) -> Look:
    if decoder in catalog:
        return look(list(catalog).index(decoder))
    return look(len(catalog) + crc32(decoder.encode()) % len(MARKS))


def shape(style: Look) -> str:
    outline, ink = MARKS[style.symbol.removesuffix(HOLLOW)], f'fill="{style.colour}"'
    if style.symbol.endswith(HOLLOW):
        ink = f'fill="none" style="stroke:{style.colour};stroke-width:.4"'
    return f'd="{outline}" {ink}'


def mark(style: Look) -> str:
    return (
        f'<svg class="sign" viewBox="-1.3 -1.3 2.6 2.6" aria-hidden="true">'
        f"<path {shape(style)}/></svg>"
    )


@dataclass(frozen=True)
class FateStyle:
    """The look of one fate.

    Colours are Okabe and Ito's (2008), which colour-blind readers can tell apart; the line is a
    second cue.

    Attributes:
        label: a word or two
        plain: the same for a reader who knows no decoder
        help: a sentence for a reader who knows no decoder
        colour: "#rrggbb" of the mark on a light ground
        colour_dark: on a dark one
        line: the CSS text-decoration (line and style) that shows the fate without colour
        bold: whether the text is heavier, a third cue
        terminal: the same look in the style language of `rich`
    """

    label: str
    plain: str
    help: str
    colour: str
    colour_dark: str
    line: str
    bold: bool
    terminal: str


FATES: dict[str, FateStyle] = {
    Fate.ACCEPTED: FateStyle(
        "accepted draft", "guess, kept",
        "This token was guessed beforehand; the large model tested it and kept it.",
        "#009E73", "#2CC79B",
        "underline solid", False, "underline #009E73",
    ),
    Fate.CORRECTED: FateStyle(
        "corrected", "corrected",
        "The large model's token in place of a guess that it refused.",
        "#D55E00", "#F28A3C",
        "underline wavy", True, "bold underline2 #D55E00",
    ),
    Fate.BONUS: FateStyle(
        "bonus", "bonus: one more, free",
        "One more token of the large model, after a draft that it kept whole.",
        "#0072B2", "#56B4E9",
        "underline double", False, "underline2 #0072B2",
    ),
    Fate.SAMPLED: FateStyle(
        "no draft", "written without a guess",
        "The large model's own token; no draft stood in its place.",
        "#767676", "#A0A0A0",
        "none", False, "",
    ),
    Fate.SEARCHED: FateStyle(
        "searched", "searched",
        "A token of the beam with the highest score.",
        "#B5598F", "#CC79A7",
        "underline dotted", False, "italic #CC79A7",
    ),
    Fate.REJECTED: FateStyle(
        "rejected draft", "guess, refused",
        "A guess that the large model tested and refused.",
        "#A87400", "#E69F00",
        "line-through solid", False, "strike #E69F00",
    ),
    Fate.DISCARDED: FateStyle(
        "not reached", "guess, not reached",
        "A guess that was never tested, because an earlier one was refused.",
        "#767676", "#A0A0A0",
        "line-through dotted", False, "strike dim",
    ),
    UNTOLD: FateStyle(
        "not told", "not told",
        "A token of another engine, which does not tell whether it was drafted.",
        "#767676", "#A0A0A0",
        "underline dashed", False, "dim",
    ),
}  # fmt: skip
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


@dataclass(frozen=True)
class Family:
    name: str
    title: str
    help: str
    decoders: tuple[str, ...]


_OURS = (
    Family(
        "baselines", "The large model alone",
        "One pass for each token; the others are compared with these.",
        ("greedy", "multinomial", "beam_search", "beam_sampling"),
    ),
    Family(
        "exact", "Drafts, same text",
        "A small model guesses ahead. The text has exactly the distribution of plain sampling.",
        (
            "speculative", "match", "block", "traversal", "spectr", "multipath", "specinfer",
            "mcss", "best_first",
        ),
    ),
    Family(
        "other", "Likelier or other text",
        "They choose several tokens together, or keep guesses that are good enough.",
        (
            "mtad", "dsbd", "speculative_beam_search", "mtjd", "bild", "typical", "fly", "cascade",
            "ensemble",
        ),
    ),
    Family(
        "copying", "No draft model",
        "Guesses come from the text so far, copied or counted, or from what the large model said "
        "before. Same text as plain sampling.",
        ("lookup", "ngram", "suffix", "recycling"),
    ),
)  # fmt: skip


def _family(method: type[Method]) -> str:
    """The family of a decoder that another package adds."""
    if method.law != Law.TARGET:
        return "other"
    return "exact" if method.uses_draft else "copying"


def served(engines: Iterable[str]) -> Family:
    return Family(
        "engines", "Engines",
        "Servers that whoever runs this page has named. They are asked for the same prompt and "
        "sampling, and timed from outside.",
        tuple(Served(name).name for name in engines),
    )  # fmt: skip


def _with_added(family: Family) -> Family:
    named = {name for each in _OURS for name in each.decoders}
    added = (n for n, m in catalog.items() if n not in named and _family(m) == family.name)
    return replace(family, decoders=(*family.decoders, *added))


FAMILIES = tuple(map(_with_added, _OURS))
