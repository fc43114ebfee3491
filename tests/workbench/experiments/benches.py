"""A bench that needs no model, for workers elsewhere."""

import time

from workbench.experiments.rows import Output, Row


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
