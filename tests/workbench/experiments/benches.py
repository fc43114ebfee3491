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

    def run(self, block, texts):
        time.sleep(self.seconds)
        ((prompt, *_),) = block.items.values()
        figures = {"new_tokens": 2, "seconds": 1.0}
        return [row([sample(prompt, id)], figures) for id in block.ids]


class Reader(Sleepy):
    """Writes each prompt that it was given, and remembers what it ran."""

    def __init__(self):
        self.ran = []

    def run(self, block, texts):
        time.sleep(self.seconds)
        (prompts,) = block.items.values()
        self.ran.append((block.ids, prompts))
        samples = [sample(*each) for each in dict(zip(prompts, texts, strict=True)).items()]
        return [row(samples, {"new_tokens": 1, "seconds": 1.0}) for _ in block.ids]


class Either:
    """Sleeps over the embedded pair, which it never loads, and decodes with any other. So the same
    actors serve both kinds of tests."""

    def __init__(self):
        self._sleepy, self._bench = Sleepy(), Bench()

    def _for(self, choice):
        return self._sleepy if choice == EMBEDDED.choice() else self._bench

    def facts(self, choice):
        return self._for(choice).facts(choice)

    def run(self, block, texts):
        return self._for(block.cells[0].choice).run(block, texts)
