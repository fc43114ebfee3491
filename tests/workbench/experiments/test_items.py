"""The items that are done, for all limits and timings. Each row is of its prompt, none is made
twice, and done is done."""

import sqlite3
import tempfile
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workbench.experiments.benches import Reader
from tests.workbench.experiments.killed import Pretend
from workbench.experiments import driver
from workbench.experiments.journal import Journal, new_owner
from workbench.experiments.plan import ExperimentRequest
from workbench.experiments.workers import Crew

PROMPTS = [f"prompt {i}" for i in range(5)]
PARTS = st.fixed_dictionaries(
    {
        "limit": st.integers(1, 5),
        "timings": st.integers(1, 3),
        "timed": st.sampled_from([True, True, False]),
        "sizes": st.sampled_from([[1], [1], [1, 2]]),
        "decoders": st.sampled_from([["multinomial"], ["greedy", "multinomial"]]),
    }
)
STEPS = st.tuples(
    st.lists(PARTS, min_size=1, max_size=2),
    st.none() | st.integers(1, 5),  # a limit for all
    st.sampled_from(["whole", "whole", "stopped", "killed", "two at once"]),
)


def written(parts: list[dict]) -> str:
    """A plan whose parts differ as little as they may, so that they share what they can."""
    text = ""
    for part in parts:
        timed = f"timings = {part['timings']}\nbatch_sizes = {part['sizes']}"
        text += '[[part]]\nprompts = ["own.txt"]\nschemes = ["unpadded", "dynamic"]\n'
        text += f"limit = {part['limit']}\n{timed if part['timed'] else 'timed = false'}\n"
        text += f"decoders = {part['decoders']}\n"
    return text


class Place:
    """A journal in a folder with a set of prompts."""

    def __init__(self, folder: Path):
        (folder / "own.txt").write_text("\n".join(PROMPTS))
        self.folder, self.path, self.bench = folder, folder / "j.sqlite", Reader()

    def run(self, text: str, limit: int | None = None, most: int | None = None) -> str:
        """Run a plan to its end, or until `most` items are done; returns the experiment's id."""
        journal, stop = Journal(self.path), threading.Event()
        with Crew(Pretend(bench=self.bench)) as crew:
            asked = ExperimentRequest(text, "own.toml", limit=limit, data=str(self.folder))
            experiment = driver.prepare(asked, crew)
            for now in driver.run(experiment, journal, crew, stop):
                if most is not None and now.done >= most:
                    stop.set()
        return experiment.id

    def sql(self, query: str, *values: object) -> list[tuple]:
        with closing(sqlite3.connect(self.path, timeout=30)) as db, db:
            return db.execute(query, values).fetchall()

    def killed(self, text: str, limit: int | None) -> None:
        """The state after `kill -9`: a process that is gone has claimed an item."""
        self.run(text, limit, most=1)
        host, pid, _, rest = new_owner().split("|")
        for (block,) in self.sql("SELECT DISTINCT block FROM cells"):
            values = "(?, 1, ?, strftime('%s', 'now') + 0)"
            gone = f"{host}|{pid}|1|{rest}"
            self.sql(f"INSERT OR IGNORE INTO claims VALUES {values}", block, gone)

    def check(self, id: str, parts: list[dict], limit: int | None) -> bool:
        """Whether all that the plan asks for is there; every row is looked at."""
        whole, now = True, Journal(self.path).progress(id)
        for kept in Journal(self.path).cells(id):
            part = parts[int(kept.part.removeprefix("part ")) - 1]
            count, size = min(part["limit"], limit or 5), kept.spec["batch_size"]
            firsts = [0] if kept.spec["scheme"] == "dynamic" else range(0, count, size)
            asked = Counter(dict.fromkeys(firsts, part["timings"] if part["timed"] else 1))
            found = Counter(row.samples[0].prompt for row in kept.rows.values())
            assert found <= asked
            whole = whole and found == asked
            for output in (o for row in kept.rows.values() for o in row.samples):
                assert output.text == PROMPTS[output.prompt]
        assert (now.done == now.total) == whole
        return whole

    def check_that_nothing_ran_twice(self) -> None:
        items = self.sql("SELECT DISTINCT block, item FROM rows")
        assert len(self.bench.ran) == len(items)


def test_a_number_means_the_same_prompts_under_any_limit(tmp_path):
    """With two timings and first 2, then 3 prompts, an item's number meant another prompt. p0 p1 p0
    p1 p1 p2 was taken for two timings of each, and the page said "6 of 6 items done"."""
    place = Place(tmp_path)
    plan = '[[part]]\nprompts = ["own.txt"]\ndecoders = ["multinomial"]\ntimings = 2\n'
    for limit in (2, 3, 1, 5):
        kept = Journal(place.path).cells(place.run(plan, limit))
        assert [len(cell.rows) for cell in kept] == [2 * limit] * 2
        for cell in kept:
            written = Counter(row.samples[0].text for row in cell.rows.values())
            assert written == dict.fromkeys(PROMPTS[:limit], 2)
    assert len(place.bench.ran) == 10


@pytest.fixture(scope="module", autouse=True)
def brisk():
    """A driver that waits for another looks again soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "TICK_SECONDS", 0.01)
        yield


@settings(max_examples=10)
@given(st.lists(STEPS, min_size=2, max_size=3))
def test_each_row_is_of_its_prompt_none_is_made_twice_and_done_is_done(steps):
    """When two parts shared work, the one with more prompts was cut to the length of the other. The
    page said "items done: 7 of 7", and tables compared figures over 5 prompts with figures over 2.
    And an item's number meant another prompt under another limit."""
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        for parts, limit, how in steps:
            text = written(parts)
            if how == "two at once":
                others = [{**part, "limit": 1 + part["limit"] % 5} for part in parts]
                other = threading.Thread(target=place.run, args=(written(others), limit))
                other.start()
                id = place.run(text, limit)
                other.join()
            elif how == "killed":
                place.killed(text, limit)
                id = place.run(text, limit)
            else:
                id = place.run(text, limit, most=2 if how == "stopped" else None)
            assert place.check(id, parts, limit) or how == "stopped"
            place.check_that_nothing_ran_twice()
