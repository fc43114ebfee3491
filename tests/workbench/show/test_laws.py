"""The card says by which rule a token was kept."""

import math

import pytest

from decoders import catalog
from workbench.show.laws import head, rule


def test_thresholds_are_those_of_the_settings():
    """MTAD, BiLD and typical acceptance never showed the threshold that decided."""
    assert rule(catalog["mtad"](threshold=0.3))["threshold"] == 0.3
    assert rule(catalog["mtad"]())["measure"] == "ratio"
    assert rule(catalog["bild"](rollback=2.0))["threshold"] == pytest.approx(math.exp(-2))
    typical = rule(catalog["typical"](epsilon=0.05))
    assert (typical["threshold"], typical["at_most"]) == (0.05, True)


def test_what_a_head_reads_is_told_of_those_that_draft_with_it():
    beside = {"draft": {"name": "a"}, "head": {"name": "h", "reads": [2, 5], "layers": 8}}
    in_its_place = {"draft": {"name": "h", "reads": [-1], "layers": 8}}
    model, by_head = catalog["best_first"](), catalog["best_first"](by="head")
    assert head(beside, by_head) == {"reads": [2, 5], "layers": 8}
    assert head(beside, model) == {}
    assert head(in_its_place, model) == head(in_its_place, by_head) == {"reads": [-1], "layers": 8}
    assert head(in_its_place, catalog["lookup"]()) == {}
    assert head({}, model) == {}


@pytest.mark.parametrize("decoder", list(catalog))
def test_every_decoder_has_one(decoder):
    assert rule(catalog[decoder]()).keys() == {"says", "threshold", "at_most", "measure", "raw"}


def test_a_rule_that_is_chosen_says_its_own_criterion():
    """The card of `speculative(rule="typical")` said nothing of the threshold."""
    chosen = rule(catalog["speculative"](rule="typical(epsilon=0.2)"))
    assert (chosen["threshold"], chosen["at_most"]) == (0.2, True)
    assert rule(catalog["lookup"](rule="match"))["says"] == ""
