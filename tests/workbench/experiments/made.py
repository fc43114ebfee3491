"""Rows of experiments that nothing decoded."""

from workbench.experiments.journal import UNMETERED, ItemRow
from workbench.runs.record import Energy, Result, Sample


def row(cell, item, samples, metrics=None, error=None, decoder="greedy") -> ItemRow:
    energy = Energy(None, UNMETERED)
    return ItemRow(cell, item, Result(decoder, 0, 0, metrics or {}, energy, samples, error=error))


def sample(prompt, text="", **more) -> Sample:
    return Sample(prompt, 3, text, **more)
