"""The page as a separate process, as `python app.py` serves it, with a small pair.

Its log can be read, it can be killed, and its disk can be filled."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[1]


class Served:
    """The app on a free port.

    `data` and `uploads` are folders in `folder`; `log` is the printed text."""

    def __init__(self, folder: Path):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.folder, self.data, self.uploads = folder, folder / "data", folder / "uploads"
        self.log = ""
        self.address = f"http://127.0.0.1:{port}/"
        self.environ = os.environ | {
            "GRADIO_SERVER_PORT": str(port), "WORKBENCH_THREADS": "1", "TMPDIR": str(folder),
            "WORKBENCH_DATA": str(self.data), "GRADIO_TEMP_DIR": str(self.uploads),
        }  # fmt: skip
        self.data.mkdir()

    def start(self) -> None:
        """Raises RuntimeError with the log if nothing is served."""
        command = [sys.executable, "-u", "-m", "tests.small", "app.py"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=self.environ, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )  # fmt: skip
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()
        while self.process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                httpx.get(self.address, timeout=60)
                return
            time.sleep(0.2)
        raise RuntimeError(self.log)

    def _read(self, process: subprocess.Popen) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.log += line

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """While this lasts, its files cannot grow beyond a few kilobytes."""
        usual = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (4096, usual[1]))
        yield
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, usual)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Served]:
    found = Served(folder)
    try:
        found.start()
        yield found
    finally:
        found.kill()
