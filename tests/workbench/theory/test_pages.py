"""The pages of theory: statements about a run, figures and tables, exact small trees."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders import judge, theory
from decoders.theory import expected_tokens, walltime_factor
from workbench.show.quantities import gives
from workbench.theory import PAGES, dsbd, mtad, one_draft, rules, speculative
from workbench.theory.estimates import (
    MeasuredDSBD,
    MeasuredMTAD,
    MeasuredSpeculative,
    Measurements,
)
from workbench.theory.one_draft import ONE_DRAFT, judged
from workbench.theory.rules import RULES, TREES, enumerated


def values(page, **changes):
    return SimpleNamespace(**{s.name: s.value for s in page.fields} | changes)


@given(
    st.integers(1, 99),
    st.floats(0.5, 12),
    st.floats(0.01, 0.5),
    st.floats(0.5, 2),
    st.sampled_from([True, False]),
)
def test_what_the_formulas_give_follows_from_what_was_measured_as_it_is_shown(
    accepted, gamma, c, verify, timed
):
    """alpha = 0.83 and gamma = 4.1 stood beside an expectation of unrounded ones."""
    costs = (c, verify, 1.4) if timed else (None, None, None)
    found = Measurements(MeasuredSpeculative(accepted, 99, gamma, 2.3, *costs))
    words = PAGES[0].of_run(found)
    alpha, shown, tokens = re.search(
        r"α = (\S+), .* γ = (\S+) on average \(expected (\S+)\)", words
    ).groups()
    assert gives(tokens, expected_tokens(float(alpha), float(shown)))
    row = PAGES[0].tables(found).strip().splitlines()[-1]
    assert (f"**{alpha}**" in row, f"**{shown}**" in row) == (True, True)
    if timed:
        each, faster, took, then = re.search(
            r"c = (\S+) of .* expects (\S+)×, .* took (\S+) passes, .* is (\S+)×", words
        ).groups()
        assert gives(faster, walltime_factor(float(alpha), float(shown), float(each)))
        cost = float(shown) * float(each) + float(took)
        assert gives(then, expected_tokens(float(alpha), float(shown)) / cost)


def test_what_disturbed_timings_gave_is_marked():
    """Expected and measured values of a disturbed run stood there as if they were certain."""
    run = MeasuredSpeculative(60, 100, 4.0, 2.3, 0.1, 1.2, 1.4, sure=False)
    words = PAGES[0].of_run(Measurements(run))
    for part in ("c = ≈0.1", "expects ≈", "measured ≈1.40×", "took ≈1.2", "expectation is ≈"):
        assert part in words
    assert words.count("≈") == 5  # counts of tokens need no clock
    assert PAGES[0].tables(Measurements(run)).strip().splitlines()[-1].count("≈") == 3
    assert "≈" not in PAGES[0].of_run(Measurements(replace(run, sure=True)))


def test_without_a_draft_model_there_is_no_c_but_a_speed():
    """Drafts of look-up beside greedy: "greedy did not run", it said."""
    copied = MeasuredSpeculative(60, 100, 4.0, 2.3, None, 1.2, 0.67)
    words = PAGES[0].of_run(Measurements(copied))
    assert "Its speed was 0.67× greedy’s; no draft model ran, so there is no c." in words
    alone = PAGES[0].of_run(Measurements(replace(copied, verify_cost=None, speedup=None)))
    assert "greedy did not run" in alone


SPECULATIVE = MeasuredSpeculative(60, 100, 4.0, 2.3, 0.1, 1.2, 1.4)
DSBD = MeasuredDSBD(60, 100, 2.0, 1.9, 1.5)
MTAD = MeasuredMTAD(3.0, 2.5, 40, 0, "warped", 1.2, 50, 0.1, 4)


def marks(figure, symbol):
    points = (
        trace for trace in figure.data if trace.type == "scatter" and trace.mode == "markers+text"
    )
    return [(point.x[0], point.y[0]) for point in points if point.marker.symbol == symbol]


@pytest.mark.parametrize("U", [50.0, 1000.0])
def test_a_bound_that_would_leave_the_curves_no_room_is_not_drawn(U):
    """The page broke with an OverflowError for a run at temperature 0.005."""
    wide = replace(MTAD, U=U)
    assert marks(mtad.ratio_figure(0.1, 2.5, 0.7, 2.0, 0.0, wide), "diamond") == []
    assert marks(mtad.ratio_figure(0.1, 2.5, 0.7, 3.0, 0.0, MTAD), "diamond")


def test_what_was_measured_is_a_diamond():
    assert marks(speculative.tokens_figure(0.8, 5, SPECULATIVE), "diamond") == [(0.6, 2.3)]
    assert marks(speculative.speedup_figure(0.8, 5, 0.05, SPECULATIVE), "diamond") == [(0.6, 1.4)]
    expected = theory.walltime_factor(0.6, 4.0, 0.1)
    assert marks(speculative.table_4_figure(SPECULATIVE), "diamond") == [(expected, 1.4)]
    assert marks(dsbd.steps_figure(0.8, 0.9, 2, DSBD), "diamond") == [(0.6, 1.9)]
    assert marks(mtad.kept_figure(0.1, 0.5, 8, MTAD), "diamond") == [(2.5, 3.0)]


def test_the_rows_are_those_of_the_library():
    v = values(ONE_DRAFT, draft="AB", u_1=0.9)
    p, q = [[3 / 6, 2 / 6, 1 / 6]] * 3, [[2 / 6, 3 / 6, 1 / 6]] * 3
    found = {each.rule.name: each for each in judge(p, q, [0, 1], uniforms=[0.9, 0.8])}
    rows = judged(v)
    assert {rule for row in rows for rule in row["rules"]} == set(found)
    for row in rows:
        for rule in row["rules"]:
            assert row["kept"] == found[rule].kept
            assert row["mean"] == pytest.approx(found[rule].expected)
    figure = one_draft.kept_figure(rows)
    assert [sum(bar.x[0] for bar in figure.data)] == pytest.approx([rows[0]["mean"]])
    assert one_draft.now(v).count("\n") == len(rows) - 1


def test_a_draft_that_q_cannot_have_drawn_is_said():
    v = values(ONE_DRAFT, draft="CA", q_C=0)
    assert one_draft.now(v) == "q(C) is 0, so the draft CA cannot have been drawn: raise q(C)."
    assert not one_draft.kept_figure(judged(v)).data


@pytest.mark.parametrize("rule", TREES)
def test_every_rule_of_trees_is_exact_and_below_the_most(rule):
    for v in (values(RULES, rule=rule, gamma=1), values(RULES, rule=rule, gamma=3, V=3)):
        outcome = enumerated(v)
        assert outcome.distance < 1e-9
        assert sum(outcome.chances) <= outcome.together + 1e-9
        assert all(a <= b + 1e-9 for a, b in zip(outcome.chances, outcome.most, strict=True))
        assert f"at most **{outcome.together:.3f}**" in rules.now(v)
        assert len(rules.kept_figure(outcome).data[0].x) == len(outcome.chances) == 1
    assert "two layers of two tokens" in rules.now(v)


def test_two_paths_reach_the_most_where_multi_path_block_verification_is_optimal():
    """And SpecInfer's rule does not: the linear program is no bound of what rules happen to do."""
    two = enumerated(values(RULES, rule="multipath", gamma=2))
    assert sum(two.chances) == pytest.approx(two.together)
    tree = enumerated(values(RULES, rule="specinfer", gamma=1))
    assert sum(tree.chances) < tree.together - 0.01
