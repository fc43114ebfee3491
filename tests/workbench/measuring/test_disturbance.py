"""The machine's counters around a lap, on made-up files and clocks."""

from pathlib import Path

import pytest

from workbench.measuring.meter import Sources, Watch
from workbench.runs.record import Load


class Machine:
    """A machine whose counters a test moves."""

    def __init__(self, folder: Path):
        self.folder, self.wall = folder, 0.0
        self.cgroup = folder / "cpu.stat"
        self.set(steal=0, pressure=0, throttled=0)
        self.worker(1, ticks=0, switches=0)

    def set(self, steal: int, pressure: int, throttled: int) -> None:
        (self.folder / "pressure").mkdir(exist_ok=True)
        (self.folder / "stat").write_text(f"cpu  1 2 3 4 5 6 7 {steal} 0 0\ncpu0 0\n")
        (self.folder / "pressure" / "cpu").write_text(
            f"some avg10=0.00 total={pressure}\nfull avg10=0.00 total=0\n"
        )
        self.cgroup.write_text(f"nr_periods 5\nnr_throttled 1\nthrottled_usec {throttled}\n")

    def worker(self, task: int, ticks: int, switches: int) -> None:
        folder = self.folder / "self" / "task" / str(task)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stat").write_text(
            f"{task} (a (strange) name) R {' '.join(['0'] * 10)} {ticks} 0 0\n"
        )
        (folder / "status").write_text(
            f"Name:\tx\nvoluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t{switches}\n"
        )

    def watch(self) -> Watch:
        return Watch(Sources(lambda: self.wall, self.folder, (self.cgroup,), lambda: ""))


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)


def test_each_counter_is_a_share_of_the_lap(machine):
    watch = machine.watch()
    before = watch.read()
    machine.wall = 2.0
    machine.worker(1, ticks=200, switches=10)
    machine.set(steal=0, pressure=500_000, throttled=200_000)
    found = watch.load(before, watch.read(), seconds=2.0, computed=1.0)
    assert found == Load(
        cpu_share=0.5, preempted=5.0, throttled=0.1, stolen=0.0, pressure=0.25, gpu=""
    )


def test_workers_that_compute_count_and_others_do_not(machine):
    """An interface thread is switched all the time; that says nothing about the decoder.

    Nor do the switches of a decoder with one thread: beside a busy program it lost its core 950
    times a second and still had it for 93% of the time."""
    machine.worker(2, ticks=0, switches=0)
    watch = machine.watch()
    before = watch.read()
    machine.wall = 1.0
    machine.worker(1, ticks=100, switches=30)
    machine.worker(2, ticks=0, switches=1000)
    assert watch.load(before, watch.read(), 1.0, 1.0).preempted == 30


def test_a_machine_that_shows_no_counters_is_named(tmp_path):
    def fails():
        raise OSError

    watch = Watch(Sources(proc=tmp_path / "none", cgroups=(tmp_path / "none",), gpu=fails))
    assert watch.missing() == ["preempted", "throttled", "stolen", "pressure"]
    found = watch.load(watch.read(), watch.read(), 1.0, 1.0)
    assert found.preempted is found.throttled is found.stolen is found.pressure is found.gpu is None


def test_a_lap_without_length_says_nothing(machine):
    watch = machine.watch()
    assert watch.load(watch.read(), watch.read(), 0.0, 0.0) == Load()
