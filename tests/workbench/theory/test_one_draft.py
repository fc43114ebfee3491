"""One draft on the page of theory: the figure and the table are those of `decoders.judge`."""

from types import SimpleNamespace

import pytest

from decoders import judge
from workbench.theory.one_draft import ONE_DRAFT, judged, kept_figure, now


def values(**changes):
    return SimpleNamespace(**{f.name: f.value for f in ONE_DRAFT.fields} | changes)


def test_the_rows_are_those_of_the_library():
    v = values(draft="AB", u_1=0.9)
    p, q = [[3 / 6, 2 / 6, 1 / 6]] * 3, [[2 / 6, 3 / 6, 1 / 6]] * 3
    found = {each.rule.name: each for each in judge(p, q, [0, 1], uniforms=[0.9, 0.8])}
    rows = judged(v)
    assert {rule for row in rows for rule in row["rules"]} == set(found)
    for row in rows:
        for rule in row["rules"]:
            assert row["kept"] == found[rule].kept
            assert row["mean"] == pytest.approx(found[rule].expected)
    figure = kept_figure(rows)
    assert [sum(bar.x[0] for bar in figure.data)] == pytest.approx([rows[0]["mean"]])
    assert now(v).count("\n") == len(rows) - 1


def test_a_draft_that_q_cannot_have_drawn_is_said():
    v = values(draft="CA", q_C=0)
    assert now(v) == "q(C) is 0, so the draft CA cannot have been drawn: raise q(C)."
    assert not kept_figure(judged(v)).data
