"""Rows of experiments that nothing decoded."""

from workbench.experiments.journal import UNMETERED
from workbench.runs.record import Energy, Result, Sample


def row(samples, metrics=None, error=None, decoder="greedy") -> Result:
    return Result(decoder, 0, 0, metrics or {}, Energy(None, UNMETERED), samples, error=error)


def sample(prompt, text="", **more) -> Sample:
    return Sample(prompt, 3, text, **more)
