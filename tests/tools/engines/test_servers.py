"""Servers are started on a free port and ended with all that they have started."""

import os
import sys
import time

import httpx
import pytest

from decoders import InputError
from tools.engines.places import Places
from tools.engines.servers import SERVERS, Server, flags, running

# It has started another process, and lists a model that is named after its number.
LISTING = """
import http.server, json, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"data": [{"id": str(child.pid)}]}).encode())
    def log_message(self, *words): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1])), Handler).serve_forever()
"""


def server(code: str) -> Server:
    return Server("made-up", "1", (sys.executable, "-c", code))


def alive(process: int) -> bool:
    """Whether it runs; one that has ended may wait for its parent to notice."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_server_and_what_it_started_end_with_the_context():
    with running(server(LISTING)) as address:
        child = int(httpx.get(f"{address}/v1/models").json()["data"][0]["id"])
        assert alive(child)
    deadline = time.monotonic() + 10
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(child)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/v1/models")


def test_a_server_ends_too_if_its_test_fails():
    with pytest.raises(ZeroDivisionError), running(server(LISTING)) as address:
        raise ZeroDivisionError
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/v1/models")


def test_a_server_that_is_not_installed_is_one_sentence():
    with pytest.raises(InputError, match=r"cannot be started .* run `make engines`"):
        running(Server("none", "1", ("/no/such/program",))).__enter__()


def test_a_server_that_ends_at_once_is_quoted():
    failing = server("import sys; print('one'); sys.exit('no memory')")
    with pytest.raises(InputError, match=r"made-up ended before it answered.*no memory"):
        running(failing).__enter__()


def test_a_server_that_does_not_answer_is_ended():
    code = f"import os, time; open({os.devnull!r}); time.sleep(600)"
    began = time.monotonic()
    with pytest.raises(InputError, match=r"did not answer within 0\.5 s"):
        running(server(code), patience=0.5).__enter__()
    assert time.monotonic() - began < 10


def test_flags_have_hyphens_and_switches_no_value():
    assert flags(max_model_len=512, metrics=True) == ("--max-model-len", "512", "--metrics")


@pytest.mark.parametrize("name", SERVERS)
def test_every_server_listens_on_this_machine_alone(name):
    command = SERVERS[name](Places()).command
    assert command[command.index("--host") + 1] == "127.0.0.1"
