"""Every decoder is in one family, under a distinct name."""

from decoders import catalog
from workbench.runs.figures import label
from workbench.show.looks import FAMILIES


def test_every_decoder_is_in_exactly_one_family():
    assert sorted(name for family in FAMILIES for name in family.decoders) == sorted(catalog)


def test_families_say_what_their_decoders_claim():
    by_name = {family.name: family for family in FAMILIES}
    assert all(
        catalog[d].law == "target" and catalog[d].uses_draft for d in by_name["exact"].decoders
    )
    assert all(
        catalog[d].law == "target" and not catalog[d].uses_draft
        for d in by_name["copying"].decoders
    )
    assert all(catalog[d].law != "target" for d in by_name["other"].decoders)
    assert not any(catalog[d].uses_draft for d in by_name["baselines"].decoders)


def test_names_are_proper_and_differ():
    """Fifteen equal boxes were called mtad, mcss, bild."""
    names = [label(name) for name in catalog]
    assert len(set(names)) == len(names)
    assert {"MTAD", "DSBD", "SpecTr", "SpecInfer", "MCSS", "BiLD", "MTJD", "Beam search"} <= set(
        names
    )
    assert label("of a later version") == "of a later version"
