"""Servers are started and ended, also if whoever started them is killed."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from decoders import InputError
from workbench.engines import starting
from workbench.engines.guard import guarded
from workbench.engines.load import Stopped
from workbench.engines.record import Query
from workbench.engines.starters import Starter

SERVER = Path(__file__).with_name("startable.py")


def starter(*flags: str, **fields: str) -> Starter:
    words = (sys.executable, str(SERVER), "--port", "{port}", *flags)
    return Starter("fake", words, ("--draft", "{length}"), **fields)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def gone(pid: int) -> bool:
    for _ in range(500):
        if not alive(pid):
            return True
        time.sleep(0.01)
    return False


def refused(of: Starter, says: str, **options) -> None:
    """It is not started, for this reason."""
    with pytest.raises(InputError, match=says), starting.started(of, **options):
        raise AssertionError("it is up")


def test_a_server_is_up_in_the_context_and_gone_after_it(tmp_path):
    pid = tmp_path / "pid"
    with starting.started(starter(), 2, ["--pid", str(pid)]) as client:
        record = client.ask(Query("Once", 8))
        assert (record.count, record.speculation.drafted) == (8, 6)
        assert alive(int(pid.read_text()))
    assert gone(int(pid.read_text()))


def test_it_ends_with_the_process_that_started_it_even_if_that_is_killed(tmp_path):
    pid = tmp_path / "pid"
    # What `started` does, without the time that importing the rest takes.
    script = (
        "import os, sys, time, tempfile\nfrom workbench.engines.guard import guarded\n"
        "with guarded(sys.argv[1:], os.environ, tempfile.TemporaryFile()):\n    time.sleep(60)"
    )
    words = starter("--pid", str(pid)).command(0, [], starting.free_port())
    process = subprocess.Popen([sys.executable, "-c", script, *words])
    while not pid.exists() or not pid.read_text().endswith("\n"):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert gone(int(pid.read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of it")
def test_it_ends_even_if_its_guard_is_killed(tmp_path):
    """Ray kills what an actor has started, so the servers of its workers went on."""
    pid = tmp_path / "pid"
    words = starter("--pid", str(pid)).command(0, [], starting.free_port())
    with tempfile.TemporaryFile() as log, guarded(words, os.environ, log) as process:
        while not pid.exists() or not pid.read_text().endswith("\n"):
            time.sleep(0.01)
        process.kill()
        process.wait()
        assert gone(int(pid.read_text()))


@pytest.mark.parametrize(
    ("flags", "patience", "says"),
    [
        (["--end", "out of\tmemory."], 60, "before it answered; its last words: out of memory."),
        (["--mute"], 0.3, "did not answer within 0.3 s of its start; its last words: none."),
        (["--unknown"], 60, "unrecognized arguments: --unknown."),
    ],
)
def test_a_server_that_does_not_come_up_is_one_sentence(flags, patience, says):
    with pytest.raises(InputError) as error, starting.started(starter(*flags), patience=patience):
        raise AssertionError("it is not up")
    assert str(error.value).startswith("Engine fake ")
    assert str(error.value).endswith(says)


def test_a_server_that_lists_its_models_before_it_can_write_is_waited_for():
    """Its first loads failed with HTTP 503."""
    with starting.started(starter("--unready", "2")) as client:
        assert client.ask(Query("Once", 8)).count == 8
    refused(starter("--unready", "99"), "did not answer within 0.5 s of its start", patience=0.5)


def test_stop_is_heard_while_a_server_starts(tmp_path):
    pid = tmp_path / "pid"
    with (
        pytest.raises(Stopped),
        starting.started(starter("--mute", "--pid", str(pid)), stopped=pid.exists),
    ):
        raise AssertionError("it is not up")
    while not pid.read_text():
        time.sleep(0.01)
    assert gone(int(pid.read_text()))


def test_a_program_that_is_not_there():
    words = ("no-such-program", "{port}")
    refused(Starter("fake", words), "last words: no-such-program: No such file or directory")


def test_a_server_with_another_model_is_ended(tmp_path):
    pid = tmp_path / "pid"
    refused(starter("--pid", str(pid), model="other"), "Engine fake serves")
    assert gone(int(pid.read_text()))


def test_it_gets_the_environment_that_is_given():
    words = (sys.executable, "-c", "import os, sys; sys.exit(os.environ['WORD'])", "{port}")
    environ = {**os.environ, "WORD": "as given"}
    refused(Starter("fake", words), "last words: as given", environ=environ)
