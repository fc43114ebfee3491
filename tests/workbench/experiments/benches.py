"""Benches for workers elsewhere: one needs no model."""

import time

from tests.workbench.experiments.made import row, sample
from workbench.experiments.workers import Bench
from workbench.models.presets import EMBEDDED


class Sleepy:
    """Sleeps over each item, and writes what depends only on the cell and the prompt."""

    seconds = 1.0

    def facts(self, choice):
        identity = {"target": "pretend", "dtype": "float32", "device": "cpu"}
        return {"identity": identity, "environment": {}}

    def run(self, unit):
        time.sleep(self.seconds)
        figures = {"new_tokens": 2, "seconds": 1.0}
        return "", [row([sample(unit.prompts[0], id)], figures) for id in unit.ids]


class Reader(Sleepy):
    """Writes each prompt that it was given, and remembers what it ran."""

    def __init__(self):
        self.ran = []

    def run(self, unit):
        time.sleep(self.seconds)
        self.ran.append((unit.ids, unit.prompts))
        texts = dict(zip(unit.prompts, unit.texts, strict=True))
        samples = [sample(prompt, text) for prompt, text in texts.items()]
        return "", [row(samples, {"new_tokens": 1, "seconds": 1.0}) for _ in unit.ids]


class Either:
    """Sleeps over the embedded pair, which it never loads, and decodes with any other. So the same
    actors serve both kinds of tests."""

    def __init__(self):
        self._sleepy, self._bench = Sleepy(), Bench()

    def _for(self, choice):
        return self._sleepy if choice == EMBEDDED.choice() else self._bench

    def facts(self, choice):
        return self._for(choice).facts(choice)

    def run(self, unit):
        return self._for(unit.choice).run(unit)
