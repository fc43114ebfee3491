"""Plans with engines that run already: what is kept of them, and energy where it is theirs."""

from dataclasses import dataclass

import pytest
import torch

from decoders import InputError
from tests.workbench.engines.served import a_stream, chunk, served, usage, vllm
from workbench.engines.addresses import LISTED, Engine
from workbench.engines.generators import VARIABLE
from workbench.engines.probe import PROMPT
from workbench.engines.starters import Starter
from workbench.experiments import driver, engine_bench
from workbench.experiments.engine_bench import EngineBench
from workbench.experiments.engine_cells import EngineUnit
from workbench.experiments.engine_rows import untold
from workbench.experiments.files import WRITERS, markdown
from workbench.experiments.report import report
from workbench.experiments.request import Request
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


def prepared(plan: str, crew: Crew, starts: bool = True) -> driver.Experiment:
    return driver.prepare(Request(plan, "engines.toml"), crew, starts)


def finished(experiment, journal, crew):
    *_, last = driver.run(experiment, journal, crew)
    return last


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


NEAR = Engine("fast", "http://localhost:8000")


def metered(place, gpus: int, device: str, monkeypatch) -> EngineUnit:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    return EngineUnit((), (), 0, (), (), place, "own", device)


@pytest.mark.parametrize(
    ("place", "gpus", "says"),
    [
        (Engine("fast", "http://host.example"), 0, "the server runs on another machine"),
        (NEAR, 1, "whether the server uses a GPU is not known"),
        (Starter("fast", ()), 1, "whether the server uses a GPU is not known"),
        (Starter("fast", (), gpus=1), 2, "which of 2 GPUs it uses is not known"),
        (Starter("fast", (), gpus=2), 2, "uses several GPUs"),
    ],
)
def test_energy_that_cannot_be_the_servers_is_not_measured(place, gpus, says, monkeypatch):
    """A server on CPUs, beside a GPU, got the joules of the idle GPU."""
    unit = metered(place, gpus, "auto", monkeypatch)
    with EngineBench()._meter(unit).window() as window:
        pass
    assert window.energy.joules is None
    assert says in window.energy.source


@pytest.mark.parametrize(
    ("place", "gpus", "device", "meters"),
    [
        (NEAR, 0, "auto", "cpu"),
        (Starter("fast", ()), 0, "auto", "cpu"),
        (Starter("fast", (), gpus=0), 2, "cuda:1", "cpu"),
        (Starter("fast", (), gpus=1), 1, "auto", "cuda"),
        (Starter("fast", (), gpus=1), 2, "cuda:1", "cuda:1"),
    ],
)
def test_what_is_declared_is_metered(place, gpus, device, meters, monkeypatch):
    monkeypatch.setattr(engine_bench, "open_meter", lambda device: device)
    assert EngineBench()._meter(metered(place, gpus, device, monkeypatch)) == meters
