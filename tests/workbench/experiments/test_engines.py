"""Plans with engines run on servers that are started for them, stop, resume, and fail in part."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from decoders import InputError
from tests.workbench.experiments.conftest import answers
from tests.workbench.experiments.engine_plans import finished, prepared
from workbench.engines.addresses import FILE
from workbench.engines.generators import VARIABLE
from workbench.engines.load import Stopped
from workbench.engines.starters import Starter
from workbench.experiments import driver
from workbench.experiments import workers as workers_of
from workbench.experiments.bench import Bench
from workbench.experiments.engine_bench import EngineBench
from workbench.experiments.journal import Journal
from workbench.experiments.workers import Crew, InProcess
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper

SERVER = Path(__file__).parents[1] / "engines" / "startable.py"
PLAN = """
[[engine]]
start = "fake"
draft_lengths = [0, 2]
concurrency = [1, 2]
limit = 4
max_new_tokens = 6
timings = 2
flags = ["--pid", "{pids}"]
"""


@pytest.fixture
def pids(tmp_path, monkeypatch) -> Path:
    """The file where each server that is started writes its process's id."""
    file = tmp_path / "engines.toml"
    file.write_text(
        f"[fake]\nstart = '{sys.executable} {SERVER} --port {{port}}'\n"
        "draft = '--draft {length}'\n"
    )
    monkeypatch.setenv(FILE, str(file))
    monkeypatch.setenv(VARIABLE, "own")
    return tmp_path / "pids"


@pytest.fixture
def workers():
    """This process, which loads no models."""
    with Crew(InProcess(Device(PairKeeper()))) as crew:
        yield crew


def test_each_draft_length_has_each_load_and_a_server_of_its_own(pids, workers, journal):
    experiment = prepared(PLAN.format(pids=pids), workers)
    last = finished(experiment, journal, workers)
    assert (last.done, last.total, last.failed) == (4, 4, 0)
    kept = journal.kept(experiment.id)
    assert [(k.part, k.label, len(k.rows)) for k in kept] == [
        ("fake", f"fake draft_length={length} concurrency={size}", 2)
        for length in (0, 2)
        for size in (1, 2)
    ]
    for cell in kept:
        for row in cell.rows.values():
            assert [(o.prompt, o.count, len(o.ids)) for o in row.outputs] == [
                (i, 6, 6) for i in range(4)
            ]
            drafted = cell.asked["settings"]["draft_length"]
            # one token, then 2 of each draft, and the last one alone
            assert row.metrics.get("verifications") == (4 * 3 if drafted else None)
            assert row.metrics["new_tokens"] == 24
            assert row.result.settings == ({"flag": "--draft 2"} if drafted else {})
            assert row.result.server.version == "1.2.3"
    # The server that tells its version before work begins also serves the first block.
    assert len(pids.read_text().split()) == 2


def test_stopped_and_resumed_it_does_nothing_twice(pids, workers, journal, tmp_path, monkeypatch):
    experiment = prepared(PLAN.format(pids=pids), workers)
    ran, usual = [], EngineBench.run

    def run(bench, unit):
        ran.append((unit.ids, unit.item))
        return usual(bench, unit)

    monkeypatch.setattr(EngineBench, "run", run)
    for most in (1, 3, 9):
        stop, seen = threading.Event(), count(1)
        for now in driver.run(experiment, journal, workers, stop):
            if now.done >= most or next(seen) > 500:
                stop.set()
    assert len(ran) == len(set(ran)) == 4
    whole = Journal(tmp_path / "whole.sqlite")
    finished(experiment, whole, workers)
    assert answers(journal, experiment.id) == answers(whole, experiment.id)


def test_a_process_hears_stop_while_it_is_at_work(pids, monkeypatch):
    """Only a worker in the driver's process could; one for each GPU ended its load first."""
    monkeypatch.setattr(workers_of, "_bench", cache(Bench))
    place = Starter("fake", (sys.executable, str(SERVER), "--port", "{port}", "--mute"))
    # Its other side is in the driver's process; a real one would import everything anew.
    stopped = get_context("spawn").Event()
    workers_of.heed(stopped)
    with ThreadPoolExecutor(1) as process:
        asked = process.submit(workers_of.on_bench, "engine_facts", place, 0, ("--pid", str(pids)))
        while not pids.exists():
            time.sleep(0.01)
        stopped.set()
        with pytest.raises(Stopped):
            asked.result(10)


def test_a_server_that_dies_fails_its_load_and_is_started_anew_for_the_next(
    pids, workers, journal, monkeypatch
):
    experiment = prepared(PLAN.format(pids=pids), workers)
    usual, calls = EngineBench._of, []

    def once_dead(bench, *arguments):
        client = usual(bench, *arguments)
        calls.append(client)
        if len(calls) == 2:
            os.kill(int(pids.read_text().split()[-1]), signal.SIGKILL)
        return client

    monkeypatch.setattr(EngineBench, "_of", once_dead)
    last = finished(experiment, journal, workers)
    assert (last.done, last.failed) == (4, 1)
    errors = [e for k in journal.kept(experiment.id) for r in k.rows.values() for e in r.errors]
    assert len(errors) == 1
    assert errors[0].startswith("Engine fake ")
    assert len(pids.read_text().split()) == 3


def test_a_draft_length_that_does_not_start_fails_alone_and_is_tried_once(
    pids, workers, journal, monkeypatch
):
    plan = PLAN.format(pids=pids)
    file = Path(pids.parent, "engines.toml")
    file.write_text(file.read_text().replace("--draft {length}", "--draft {length} --end full"))
    experiment = prepared(plan, workers)
    last = finished(experiment, journal, workers)
    kept = journal.kept(experiment.id)
    assert last.failed == 4
    assert {
        k.asked["settings"]["draft_length"] for k in kept for r in k.rows.values() if r.errors
    } == {2}
    assert {e for k in kept for r in k.rows.values() for e in r.errors} == {
        "Engine fake ended before it answered; its last words: full."
    }
    assert len(pids.read_text().split()) == 2


def test_what_cannot_be_started_is_said_before_work_begins(pids, workers, journal):
    with pytest.raises(InputError, match="its last words: full"):
        prepared(PLAN.format(pids=pids).replace("flags = [", 'flags = ["--end", "full", '), workers)
    assert journal.experiments() == []


@pytest.mark.parametrize(
    ("changed", "starts", "says"),
    [
        ({}, False, "run it in the terminal, with --start-engines"),
        ({'start = "fake"': 'start = "fate"'}, True, "to start 'fate': did you mean 'fake'"),
        ({'start = "fake"': 'name = "fake"', "flags": "#", "draft_l": "#"}, True,
         "There is no engine 'fake': name it in WORKBENCH_ENGINES"),
        ({"[1, 2]": "[1, 5]"}, True, "4 prompts of stories cannot keep 5 requests open"),
    ],
)  # fmt: skip
def test_what_may_not_or_cannot_be_asked_is_one_sentence(pids, workers, changed, starts, says):
    plan = PLAN.format(pids=pids)
    for old, new in changed.items():
        plan = plan.replace(old, new)
    with pytest.raises(InputError, match=says) as error:
        prepared(plan, workers, starts)
    assert "\n" not in str(error.value)
    if not starts:
        assert not pids.exists()


def test_drafting_needs_words_for_it(pids, workers):
    file = Path(pids.parent, "engines.toml")
    file.write_text(file.read_text().partition("draft")[0])
    with pytest.raises(InputError, match="add `draft` to its entry"):
        prepared(PLAN.format(pids=pids), workers)
    plan = PLAN.format(pids=pids).replace("[0, 2]", "[0]")
    assert len(prepared(plan, workers).blocks) == 1


def test_servers_on_cpus_take_one_load_at_a_time_and_those_with_gpus_do_not(
    pids, workers, journal, monkeypatch
):
    """Loads on started servers shared the CPUs, and slowed each other down."""
    one, other = prepared(PLAN.format(pids=pids), workers).blocks
    assert journal.claim(one, "a|1|?|0") == 0
    for block in (one, other):
        assert journal.claim(block, "a|1|?|0") is journal.claim(block, "b|1|?|0") is None
    journal.release(one, 0, "a|1|?|0")
    assert journal.claim(other, "b|1|?|0") == 0
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    blocks = prepared(PLAN.format(pids=pids), workers).blocks
    assert {block.alone for block in blocks} == {""}


def test_an_identity_has_version_flags_and_model(pids, workers):
    plan = PLAN.format(pids=pids).replace("draft_lengths = [0, 2]", "draft_lengths = [0]")
    ids = [prepared(plan, workers).id]
    assert prepared(plan, workers).id == ids[0]
    for words in ('"--version", "1.2.4"', '"--model", "other"', '"--draft", "0"'):
        ids.append(prepared(plan.replace("flags = [", f"flags = [{words}, "), workers).id)
    file = Path(pids.parent, "engines.toml")
    file.write_text(file.read_text().replace("{port}", "{port} --version 1.2.4"))
    ids.append(prepared(plan, workers).id)
    assert len(set(ids)) == 5
