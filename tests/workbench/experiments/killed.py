"""A program for the tests that kill it: a driver on the journal it is given, with a worker that needs no model.

python -m tests.workbench.experiments.killed JOURNAL [SECONDS_PER_ITEM]
"""

import time
from concurrent.futures import ThreadPoolExecutor

from workbench.experiments import driver
from workbench.experiments.journal import Journal
from workbench.experiments.rows import Output, Row
from workbench.experiments.workers import Crew, InProcess

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


class Pretend(InProcess):
    """Takes some time over each item and writes what depends only on the cell and the prompt."""

    def __init__(self, seconds: float):
        self.seconds, self._thread = seconds, ThreadPoolExecutor(1)

    def submit(self, name, *arguments):
        return self._thread.submit(getattr(self, name), *arguments)

    def facts(self, choice, idle=False):
        return {"identity": {"target": "pretend", "dtype": "float32", "device": "cpu"}, "environment": {}}

    def run(self, unit):
        time.sleep(self.seconds)
        made = lambda id: [int(id[:4], 16), *map(ord, unit.texts[0][:5])]  # noqa: E731
        return [
            Row(
                id,
                unit.item,
                [Output(unit.prompts[0], 3, made(id), id, [6], [4])],
                {"new_tokens": 6, "seconds": self.seconds},
            )
            for id in unit.ids
        ]


def main(path: str, seconds: float) -> str:
    journal = Journal(path)
    with Crew(Pretend(seconds)) as crew:
        experiment = driver.prepare(driver.Request(PLAN, "killed.toml"), crew)
        for _ in driver.run(experiment, journal, crew):
            pass
    return experiment.id
