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

    `data` and `uploads` are folders in `folder`; `log` is the printed text. `disk` is the size of a
    separate disk for `data`, such as "20m", if this process may mount one."""

    def __init__(self, folder: Path, disk: str | None = None):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.folder, self.data, self.uploads, self.log = (
            folder,
            folder / "data",
            folder / "uploads",
            "",
        )
        self.address = f"http://127.0.0.1:{port}/"
        own = {
            "WORKBENCH_DATA": str(self.data),
            "GRADIO_TEMP_DIR": str(self.uploads),
            "TMPDIR": str(folder),
        }
        self.environ = {
            **os.environ,
            "GRADIO_SERVER_PORT": str(port),
            "WORKBENCH_THREADS": "1",
            **own,
        }
        self.data.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={disk}", "tmpfs", str(self.data)]
        self.mounted = (
            disk is not None and subprocess.run(mount, capture_output=True).returncode == 0
        )

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

    @property
    def way(self) -> str:
        """How its disk is filled."""
        return (
            "a file on a tmpfs"
            if self.mounted
            else "a limit on the size of its files (RLIMIT_FSIZE)"
        )

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """While this lasts, its data cannot grow."""
        if not self.mounted:
            usual = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (4096, usual[1]))
            yield
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, usual)
            return
        ballast = self.data / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1024))
        yield
        ballast.unlink()


@contextlib.contextmanager
def served(folder: Path, disk: str | None = None) -> Iterator[Served]:
    found = Served(folder, disk)
    try:
        found.start()
        yield found
    finally:
        found.kill()
        if found.mounted:
            subprocess.run(["umount", str(found.data)], check=True)
