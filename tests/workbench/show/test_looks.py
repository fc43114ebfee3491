"""One colour and one mark for each decoder, wherever it is drawn."""

import pytest

from decoders import catalog
from workbench.show.looks import COLOURS, look_of, mark


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return sum(
        w * (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4)
        for w, v in zip((0.2126, 0.7152, 0.0722), parts, strict=True)
    )


def test_no_two_decoders_share_a_mark():
    """MTAD and SpecInfer once shared colour, dash and symbol, as did two other pairs.

    They were speculative and SpecTr, DSBD and MCSS."""
    assert len({look_of(decoder).symbol for decoder in catalog}) == len(catalog)
    assert len({mark(look_of(decoder)) for decoder in catalog}) == len(catalog)


@pytest.mark.parametrize("ground", ["#ffffff", "#1e293b", "#0b0f19"])
def test_colours_stand_out_on_either_ground(ground):
    """WCAG 1.4.11 asks 3:1 of what is drawn; amber and sky once had 2.2."""
    for colour in COLOURS:
        light, dark = sorted((luminance(colour), luminance(ground)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3, colour
