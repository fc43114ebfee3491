"""One colour and one mark for each decoder and each fate, wherever it is drawn."""

import pytest

from decoders import catalog
from workbench.show.looks import COLOURS, FAMILIES, FATES, look, look_of, mark


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return sum(
        w * (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4)
        for w, v in zip((0.2126, 0.7152, 0.0722), parts, strict=True)
    )


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_no_two_decoders_share_a_mark():
    """MTAD and SpecInfer once shared colour, dash and symbol, as did two other pairs. They were
    speculative and SpecTr, DSBD and MCSS."""
    assert len({look_of(decoder).symbol for decoder in catalog}) == len(catalog)
    assert len({mark(look_of(decoder)) for decoder in catalog}) == len(catalog)


def test_one_more_decoder_needs_no_mark_of_its_own():
    """There were as many marks as decoders, so the next one had to draw one, or shared one."""
    marks = [mark(look(i)) for i in range(len(catalog) + 20)]
    assert len({*marks}) == len(marks)


@pytest.mark.parametrize("ground", ["#ffffff", "#1e293b", "#0b0f19"])
def test_colours_stand_out_on_either_ground(ground):
    """WCAG 1.4.11 asks 3:1 of what is drawn; amber and sky once had 2.2."""
    for colour in COLOURS:
        assert contrast(colour, ground) >= 3, colour


def test_marks_stand_out_on_their_ground():
    """WCAG 1.4.11: graphical objects need 3:1."""
    for style in FATES.values():
        assert contrast(style.colour, "#ffffff") >= 3
        assert contrast(style.colour_dark, "#14171d") >= 3


def test_every_decoder_is_in_exactly_one_family():
    assert sorted(name for family in FAMILIES for name in family.decoders) == sorted(catalog)


def test_families_say_what_their_decoders_claim():
    by_name = {family.name: family for family in FAMILIES}
    for name, drafts in (("exact", True), ("copying", False)):
        for method in (catalog[decoder] for decoder in by_name[name].decoders):
            assert (method.law, method.uses_draft) == ("target", drafts)
    assert all(catalog[d].law != "target" for d in by_name["other"].decoders)
    assert not any(catalog[d].uses_draft for d in by_name["baselines"].decoders)
