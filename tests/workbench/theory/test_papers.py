"""The tables as printed against the formulas they come from."""

import pytest

from decoders.theory import operations_factor, walltime_factor
from workbench.theory.speculative import TABLE_1, TABLE_4


@pytest.mark.parametrize("row", TABLE_1, ids=lambda r: f"alpha={r.alpha},gamma={r.gamma}")
def test_table_1(row):
    assert walltime_factor(row.alpha, row.gamma, 0) == pytest.approx(row.speed, abs=0.0051)
    assert operations_factor(row.alpha, row.gamma, 0) == pytest.approx(row.operations, abs=0.0051)


@pytest.mark.parametrize("row", TABLE_4, ids=lambda r: f"{r.task}-{r.draft}-{r.temperature}")
def test_table_4_expectations(row):
    """The paper prints alpha and c with two digits: its own expectation may differ accordingly."""
    low, high = (
        walltime_factor(row.alpha + s * 0.005, row.gamma, row.c - s * 0.005) for s in (-1, 1)
    )
    assert low - 0.05 <= row.expected <= high + 0.05
