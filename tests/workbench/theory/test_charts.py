"""The figures hold the theory's numbers at every corner of the sliders, on either ground."""

import itertools
from dataclasses import replace

import pytest

from decoders import theory
from workbench.theory import dsbd, ems_sd, mtad, speculative
from workbench.theory.estimates import MeasuredDSBD, MeasuredMTAD, MeasuredSpeculative
from workbench.theory.speculative import TABLE_1

SPECULATIVE = MeasuredSpeculative(60, 100, 4.0, 2.3, 0.1, 1.2, 1.4)
UNTIMED = MeasuredSpeculative(60, 100, 4.0, 2.3, None, None, None)
DSBD = MeasuredDSBD(60, 100, 2.0, 1.9, 1.5)
MTAD = MeasuredMTAD(3.0, 2.5, 40, 0, "warped", 1.2, 50, 0.1, 4)


def bold(figure):
    return next(trace for trace in figure.data if trace.line.width == 3)


def marks(figure, symbol):
    points = (
        trace for trace in figure.data if trace.type == "scatter" and trace.mode == "markers+text"
    )
    return [(point.x[0], point.y[0]) for point in points if point.marker.symbol == symbol]


@pytest.mark.parametrize("row", TABLE_1, ids=lambda r: f"{r.alpha},{r.gamma}")
def test_table_1_lies_on_the_curves(row):
    speed = dict(
        zip(
            *(bold(speculative.speedup_figure(row.alpha, row.gamma, 0))[k] for k in "xy"),
            strict=True,
        )
    )
    operations = dict(
        zip(
            *(bold(speculative.operations_figure(row.alpha, row.gamma, 0))[k] for k in "xy"),
            strict=True,
        )
    )
    assert speed[row.alpha] == pytest.approx(row.speed, abs=0.0051)
    assert operations[row.alpha] == pytest.approx(row.operations, abs=0.0051)


def test_best_gamma_of_the_paper():
    for alpha, best in ((0.6, 4), (0.7, 6), (0.8, 8), (0.9, 13)):
        assert marks(speculative.best_gamma_figure(alpha, 0.05), "circle") == [(alpha, best)]


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


def test_every_figure_has_a_clear_ground_at_every_corner():
    for low, batch in itertools.product((0.0, 1.0), (1, 32)):
        figures = [
            speculative.tokens_figure(low, batch), speculative.speedup_figure(low, batch, low),
            speculative.best_gamma_figure(low, low), speculative.operations_figure(low, batch, low),
            dsbd.steps_figure(low, low, batch), dsbd.width_figure([low] * 3, low, 5),
            ems_sd.padding_figure("pads", low, batch, 1), ems_sd.longest_figure(low, batch, 1),
        ]  # fmt: skip
        for figure in figures:
            assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
            assert "NaN" not in figure.to_json()
            assert "Infinity" not in figure.to_json()
