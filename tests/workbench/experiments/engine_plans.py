"""Plans with engines, prepared and run to their end."""

from workbench.experiments import driver
from workbench.experiments.request import Request
from workbench.experiments.workers import Crew


def prepared(plan: str, crew: Crew, starts: bool = True) -> driver.Experiment:
    return driver.prepare(Request(plan, "engines.toml"), crew, starts)


def finished(experiment, journal, crew):
    *_, last = driver.run(experiment, journal, crew)
    return last
