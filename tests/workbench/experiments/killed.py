"""A driver for tests to kill: it works on a given journal with a worker that needs no model."""

from concurrent.futures import ThreadPoolExecutor

from tests.workbench.experiments.benches import Sleepy
from workbench.experiments import driver
from workbench.experiments.journal import Journal
from workbench.experiments.plan import ExperimentRequest
from workbench.experiments.workers import Crew

PLAN = """
[[part]]
name = "timed"
limit = 8
decoders = ["speculative", "mtad"]
[[part]]
name = "quality"
limit = 8
timed = false
decoders = ["multinomial", "typical"]
"""


class Pretend:
    """A pool of one worker that is a thread of this process."""

    count, deaths, says = 1, (), "a thread"

    def __init__(self, seconds: float = 0.0, bench: Sleepy | None = None):
        self._bench, self._thread = bench or Sleepy(), ThreadPoolExecutor(1)
        self._bench.seconds = seconds

    def start(self):
        return self

    def submit(self, name, *arguments):
        return self._thread.submit(getattr(self._bench, name), *arguments)

    def close(self):
        self._thread.shutdown()


def main(path: str, seconds: float) -> str:
    """Run the plan to its end; returns the experiment's id."""
    journal = Journal(path)
    with Crew(Pretend(seconds)) as crew:
        experiment = driver.prepare(ExperimentRequest(PLAN, "killed.toml"), crew)
        for _ in driver.run(experiment, journal, crew):
            pass
    return experiment.id
