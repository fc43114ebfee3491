"""The papers' orderings that ship with the pair."""

from dataclasses import replace

from workbench.experiments import plan as plans
from workbench.experiments.files import SIGNS, Orderings, orderings_html, shipped


def test_they_are_those_of_the_plan():
    found = shipped()
    wanted = [(o.says, o.source) for o in plans.find(found.plan).orderings]
    assert sorted((f.says, f.source) for f in found.found) == sorted(wanted)
    assert {f.verdict for f in found.found} <= set(SIGNS)


def test_they_are_shown_with_a_sign_each_and_say_when_they_were_recorded():
    found = shipped()
    shown = orderings_html(found)
    assert shown.count("<li ") == len(found.found)
    assert f"Recorded on {found.created[:10]}" in shown
    for verdict, sign in SIGNS.items():
        count = sum(f.verdict == verdict for f in found.found)
        assert (f"<b>{count} {sign}</b>" in shown) == (count > 0)


def test_a_text_in_them_stays_text_and_they_survive_their_file():
    found = shipped()
    forged = replace(found, pair="<i>", found=(replace(found.found[0], says="<img>"),))
    assert "<img>" not in orderings_html(forged)
    assert "<i>" not in orderings_html(forged)
    assert Orderings.from_json(forged.to_json()) == forged
