"""The looks and words of a token's fate: one table for the panels, the reports and the terminal."""

from dataclasses import dataclass

from decoders import Fate


@dataclass(frozen=True)
class FateStyle:
    """The look of one fate.

    Colours are Okabe and Ito's (2008), which colour-blind readers can tell apart; the line is a
    second cue.

    Attributes:
        label: a word or two
        help: a sentence for a reader who knows no decoder
        colour: "#rrggbb" of the mark on a light ground
        colour_dark: on a dark one
        line: the CSS text-decoration (line and style) that shows the fate without colour
        bold: whether the text is heavier, a third cue
        terminal: the same look in the style language of `rich`
    """

    label: str
    help: str
    colour: str
    colour_dark: str
    line: str
    bold: bool
    terminal: str


FATES: dict[Fate, FateStyle] = {
    Fate.ACCEPTED: FateStyle(
        "accepted draft",
        "This token was guessed beforehand; the large model tested it and kept it.",
        "#009E73", "#2CC79B", "underline solid", False, "underline #009E73",
    ),
    Fate.CORRECTED: FateStyle(
        "corrected", "The large model's token in place of a guess that it refused.",
        "#D55E00", "#F28A3C", "underline wavy", True, "bold underline2 #D55E00",
    ),
    Fate.BONUS: FateStyle(
        "bonus", "One more token of the large model, after a draft that it kept whole.",
        "#0072B2", "#56B4E9", "underline double", False, "underline2 #0072B2",
    ),
    Fate.SAMPLED: FateStyle(
        "no draft", "The large model's own token; no draft was involved.",
        "#767676", "#A0A0A0", "none", False, "",
    ),
    Fate.SEARCHED: FateStyle(
        "searched", "A token of the beam with the highest score.",
        "#B5598F", "#CC79A7", "underline dotted", False, "italic #CC79A7",
    ),
    Fate.REJECTED: FateStyle(
        "rejected draft", "A guess that the large model tested and refused.",
        "#A87400", "#E69F00", "line-through solid", False, "strike #E69F00",
    ),
    Fate.DISCARDED: FateStyle(
        "not reached", "A guess that was never tested, because an earlier one was refused.",
        "#767676", "#A0A0A0", "line-through dotted", False, "strike dim",
    ),
}  # fmt: skip
