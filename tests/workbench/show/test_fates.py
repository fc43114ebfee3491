from itertools import combinations

from decoders import Fate
from workbench.show.fates import FATES


def luminance(colour):
    """WCAG's relative luminance of "#rrggbb"."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_every_fate_has_a_look_and_words():
    assert set(FATES) == set(Fate)
    assert all(style.label and style.help.endswith(".") for style in FATES.values())


def test_a_guess_is_not_said_to_be_a_models():
    """Tokens that look-up had copied said "The small model guessed this token"."""
    assert not any("small model" in style.help for style in FATES.values())


def test_no_two_fates_share_the_second_cue():
    """Without any colour at all the lines still tell them apart."""
    for (_, a), (_, b) in combinations(FATES.items(), 2):
        assert a.line != b.line


def test_marks_stand_out_on_their_ground():
    """WCAG 1.4.11: graphical objects need 3:1."""
    for style in FATES.values():
        assert contrast(style.colour, "#ffffff") >= 3
        assert contrast(style.colour_dark, "#14171d") >= 3
