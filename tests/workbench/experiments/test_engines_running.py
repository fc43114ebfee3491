"""Plans with engines that run already: what is kept of them, and energy where it is theirs."""

import time
from dataclasses import dataclass
from itertools import count
from threading import Event, Lock

import pytest

from decoders import InputError
from tests.workbench.engines.served import a_json, a_stream, chunk, served, usage, vllm
from tests.workbench.experiments.engine_plans import finished, prepared
from tests.workbench.experiments.killed import Pretend
from workbench.engines.addresses import LISTED
from workbench.engines.generators import VARIABLE
from workbench.engines.probe import PROMPT
from workbench.experiments import driver, engine_bench
from workbench.experiments.bench import Bench
from workbench.experiments.engine_rows import untold
from workbench.experiments.files import WRITERS, markdown
from workbench.experiments.report import report
from workbench.experiments.workers import Crew, InProcess
from workbench.measuring import meter
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper
from workbench.runs.trace import Energy


@pytest.fixture
def workers(monkeypatch):
    """This process, which loads no models and makes load itself."""
    monkeypatch.setenv(VARIABLE, "own")
    with Crew(InProcess(Device(PairKeeper()))) as crew:
        yield crew


NAMED = '[[engine]]\nname = "fast"\nlimit = 2\nmax_new_tokens = 2\ntimings = 1\n'


def answer(call):
    return a_stream([chunk(" a", [1]), chunk(" b", [2], finish_reason="length"), usage(2)])


def test_a_running_server_is_asked_by_its_name_and_its_address_is_kept_nowhere(
    workers, journal, monkeypatch
):
    monkeypatch.setenv("FAST_KEY", "secret-secret")
    with served(vllm(answer)) as server:
        monkeypatch.setenv(LISTED, f"fast={server.url} key=FAST_KEY")
        experiment = prepared(NAMED, workers, starts=False)
        assert finished(experiment, journal, workers).failed == 0
        assert {call.key for call in server.calls} == {"Bearer secret-secret"}
        port = server.url.rsplit(":", 1)[1]
    found = report(journal, experiment.id)
    written = [text for write in WRITERS.values() for text in write(found).values()]
    assert "fast" in markdown(found)
    for text in (*written, journal.path.read_bytes().decode("latin-1")):
        assert f":{port}" not in text
        assert "secret-secret" not in text


def test_an_address_that_a_server_repeats_is_kept_nowhere(workers, journal, monkeypatch):
    """Its errors, its model's name and its version were kept and shown as it sent them."""
    places, asked = [], count()

    def answers(call):
        name = f"stories of {places[0]}/v1"
        if call.path == "/v1/models":
            return a_json({"data": [{"id": name, "owned_by": "vllm"}]})
        if call.path == "/version":
            return a_json({"version": f"1.2 {places[0]}"})
        if call.body is None:
            raise KeyError(call.path)
        if next(asked) > 4:  # two tell how tokens are counted, three are the first timing
            return a_json({"error": {"message": f"no memory at {places[0]}"}}, 500)
        piece = chunk(" a b", [1, 2], finish_reason="length", model=name)
        return a_stream([piece, usage(2, model=name)])

    with served(answers) as server:
        places.append(server.url)
        monkeypatch.setenv(LISTED, f"fast={server.url}")
        experiment = prepared(NAMED.replace("timings = 1", "timings = 2"), workers)
        last = finished(experiment, journal, workers)
    assert (last.done, last.failed) == (2, 1)
    (kept,) = journal.kept(experiment.id)
    assert [e for row in kept.rows.values() for e in row.errors] == [
        "Engine fast failed (HTTP 500); it says: no memory at [address]."
    ]
    server_of = kept.rows[0].result.server
    assert (server_of.model, server_of.version) == ("stories of [address]/v1", "1.2 [address]")
    told = str(report(journal, experiment.id).environment)
    assert "stories of [address]/v1" in told
    port = server.url.rsplit(":", 1)[1]
    assert f":{port}" not in told + journal.path.read_bytes().decode("latin-1")


def test_an_address_is_in_no_error_before_work_begins(workers, monkeypatch):
    with served(lambda call: a_json({"error": {"message": f"no {places[0]}"}}, 500)) as server:
        places = [server.url]
        monkeypatch.setenv(LISTED, f"fast={server.url}")
        with pytest.raises(InputError, match=r"it says: no \[address\]"):
            prepared(NAMED, workers)


class Two(Pretend):
    """Two workers, each a thread of this process."""

    count, says = 2, "two threads"

    def __init__(self):
        super().__init__(bench=Bench())

    def start(self, number):
        return Two()


class Counting:
    """Answers, and counts the requests that are open at once."""

    def __init__(self):
        self.open, self.most, self.lock = 0, 0, Lock()

    def __call__(self, call):
        with self.lock:
            self.open += 1
            self.most = max(self.most, self.open)
        time.sleep(0.05)
        with self.lock:
            self.open -= 1
        return answer(call)


def test_a_server_gets_one_load_at_a_time_whoever_makes_it(journal, monkeypatch):
    """Two workers put two loads on it at once, and each measured the other's, too."""
    monkeypatch.setenv(VARIABLE, "own")
    each, both = (Counting(), Counting()), Counting()
    parts = [vllm(lambda call, one=one: both(call) and one(call)) for one in each]
    plan = NAMED.replace("timings = 1", "timings = 3")
    with served(parts[0]) as fast, served(parts[1]) as slow, Crew(Two()) as crew:
        monkeypatch.setenv(LISTED, f"fast={fast.url}; slow={slow.url}")
        experiment = prepared(plan + plan.replace("fast", "slow"), crew)
        last = finished(experiment, journal, crew)
    assert (last.done, last.failed) == (6, 0)
    assert [one.most for one in each] == [1, 1]
    assert both.most == 2  # one beside the other


def test_a_load_that_is_stopped_is_given_back_at_once(workers, journal, monkeypatch):
    """Stop waited for the whole load, and for whatever a silent server took."""
    asked, silent, stop = count(), Event(), Event()

    def answers(call):
        if next(asked) >= 2 and not silent.is_set():
            stop.set()
            silent.wait(20)
        return answer(call)

    with served(vllm(answers)) as server:
        monkeypatch.setenv(LISTED, f"fast={server.url}")
        experiment, began = prepared(NAMED, workers), time.monotonic()
        *_, last = driver.run(experiment, journal, workers, stop)
        assert (last.done, last.running) == (0, False)
        assert time.monotonic() - began < 5
        silent.set()
        last = finished(experiment, journal, workers)
        assert (last.done, last.failed) == (1, 0)


def test_a_server_that_tells_no_number_of_tokens_has_no_speed(workers, monkeypatch):
    with served(vllm(lambda call: a_stream([chunk(" a", finish_reason="length")]))) as server:
        monkeypatch.setenv(LISTED, f"fast={server.url}")
        with pytest.raises(InputError, match="Engine fast does not tell how many tokens"):
            prepared(NAMED, workers)


def test_tokens_that_are_not_told_later_fail_the_load(workers, journal, monkeypatch):

    def only_the_first(call):
        told = call.body["prompt"] == PROMPT
        return answer(call) if told else a_stream([chunk(" a", finish_reason="length")])

    with served(vllm(only_the_first)) as server:
        monkeypatch.setenv(LISTED, f"fast={server.url}")
        experiment = prepared(NAMED.replace("2", "1"), workers)
        assert finished(experiment, journal, workers).failed == 1
    (kept,) = journal.kept(experiment.id)
    assert kept.rows[0].errors == [str(untold("fast"))]


@dataclass
class Meter:
    """Counts the windows that were open, a joule each."""

    windows: int = 0

    def start(self):
        self.windows += 1

    def stop(self, begun, seconds):
        return Energy(1.0, "a made-up meter")


def test_energy_is_that_of_each_load_where_the_server_runs_here(workers, journal, monkeypatch):
    gauge = Meter()
    monkeypatch.setattr(engine_bench, "open_meter", lambda device: meter.Meter(gauge))
    with served(vllm(answer)) as server:
        monkeypatch.setenv(LISTED, f"fast={server.url}")
        experiment = prepared(NAMED.replace("timings = 1", "timings = 3"), workers)
        finished(experiment, journal, workers)
    (kept,) = journal.kept(experiment.id)
    assert [row.metrics["joules"] for row in kept.rows.values()] == [1.0] * 3
    assert {row.result.energy.source for row in kept.rows.values()} == {"a made-up meter"}
    assert gauge.windows == 3
