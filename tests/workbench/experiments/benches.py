"""Benches for workers elsewhere: one needs no model."""

import time

from workbench.experiments.bench import Bench
from workbench.experiments.rows import Output, Row
from workbench.models.presets import EMBEDDED


class Sleepy:
    """Sleeps over each item, and writes what depends only on the cell and the prompt. BiLD breaks down."""

    seconds = 1.0

    def facts(self, choice, idle=False):
        return {"identity": {"target": "pretend", "dtype": "float32", "device": "cpu"}, "environment": {}}

    def run(self, unit):
        time.sleep(self.seconds)
        if unit.cells[0].method.name == "bild":
            raise ValueError("broken there\nand a second line")
        return [
            Row(id, unit.item, [Output(unit.prompts[0], 3, [int(id[:4], 16), len(unit.texts[0])], id)], {"new_tokens": 2, "seconds": 1.0})
            for id in unit.ids
        ]  # fmt: skip


class Either:
    """Sleeps over the embedded pair, which it never loads, and decodes with any other: actors that are up serve both kinds of tests."""

    def __init__(self):
        self._sleepy, self._bench = Sleepy(), Bench()

    def _for(self, choice):
        return self._sleepy if choice == EMBEDDED.choice() else self._bench

    def facts(self, choice, idle=False):
        return self._for(choice).facts(choice, False)  # idle power takes two seconds

    def run(self, unit):
        return self._for(unit.choice).run(unit)
