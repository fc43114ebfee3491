"""Start servers of other engines on this machine, with a pair of models, and end them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryFile

import httpx

from decoders import InputError
from tools.engines.places import LLAMA_CPP_PYTHON, ROOT, VLLM, Places

PATIENCE = 300  # seconds until a server answers; vLLM compiles for one or two minutes
PAIR = "assets/stories"
HOST, NAME = "127.0.0.1", "stories"  # of this machine; of the model, where we may choose it


@dataclass(frozen=True)
class Server:
    """How a server is started.

    Attributes:
        name: of the engine, with what is special about it
        version: of the engine
        command: the program and its flags; the port is added
        environ: variables that it is given beside ours
        model: the name of the model in requests
    """

    name: str
    version: str
    command: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)
    model: str = NAME


def flags(**values: object) -> tuple[str, ...]:
    """Flags of a command line: `max_model_len=512` becomes "--max-model-len", "512"."""
    given = [(f"--{name.replace('_', '-')}", value) for name, value in values.items()]
    return tuple(
        word for name, value in given for word in ((name,) if value is True else (name, str(value)))
    )


def vllm(places: Places, draft_length: int = 0, threads: int = 1) -> Server:
    """vLLM's build for CPUs; with a draft model if a draft length is given."""
    draft = {
        "model": f"{PAIR}/draft",
        "num_speculative_tokens": draft_length,
        "method": "draft_model",
    }
    speculation = flags(
        speculative_config=json.dumps(draft), per_request_spec_decode_metrics="detailed"
    )
    served = flags(served_model_name=NAME, max_model_len=512, host=HOST)
    return Server(
        "vllm-draft" if draft_length else "vllm",
        VLLM,
        (
            *(str(places.vllm / "bin" / "vllm"), "serve", f"{PAIR}/target"),
            *served,
            *(speculation if draft_length else ()),
        ),
        {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": str(threads),
        },
    )


def llama_server(
    places: Places, target: Path, draft: Path | None = None, draft_length: int = 3,
    threads: int = 1, slots: int = 1,
) -> Server:  # fmt: skip
    """llama.cpp's server, with a draft model if one is given."""
    speculation = flags(model_draft=draft, spec_type="draft-simple", spec_draft_n_max=draft_length)
    served = flags(
        model=target, alias=NAME, ctx_size=512 * slots, parallel=slots, threads=threads,
        threads_batch=threads, metrics=True, no_ui=True, host=HOST,
    )  # fmt: skip
    return Server(
        "llama-cpp-draft" if draft else "llama-cpp",
        LLAMA_CPP_PYTHON,
        (
            str(places.llama_cpp / "bin" / "llama-server"),
            *served,
            *(speculation if draft else ()),
        ),
    )


def llama_python(places: Places, target: Path) -> Server:
    """The server of llama-cpp-python, whose flags keep their underscores."""
    python = str(places.llama_python / "bin" / "python")
    served = ("--model", str(target), "--model_alias", NAME, "--n_ctx", "512")
    return Server(
        "llama-cpp-python",
        LLAMA_CPP_PYTHON,
        (python, "-m", "llama_cpp.server", *served, "--n_threads", "1", "--host", HOST),
        {"LLAMA_CPP_LIB_PATH": str(places.llama_cpp / "bin")},
    )


def transformers() -> Server:
    """`transformers serve` of this environment."""
    folder, program = f"{PAIR}/target", Path(sys.executable).with_name("transformers")
    return Server(
        "transformers",
        metadata.version("transformers"),
        (str(program), "serve", folder, *flags(device="cpu", dtype="float32", host=HOST)),
        {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        folder,
    )


# Servers with the embedded pair.
SERVERS: dict[str, Callable[[Places], Server]] = {
    "vllm": vllm,
    "vllm-draft": lambda places: vllm(places, draft_length=3),
    "llama-cpp": lambda places: llama_server(places, places.target),
    "llama-cpp-draft": lambda places: llama_server(places, places.target, places.draft),
    "llama-cpp-python": lambda places: llama_python(places, places.target),
    "transformers": lambda places: transformers(),
}


def free_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


@contextmanager
def running(server: Server, patience: float = PATIENCE) -> Iterator[str]:
    """The address of a server, which ends with the context.

    Args:
        server: what to start
        patience: seconds until it must answer

    Raises:
        InputError: if it is not installed, ends at once, or does not answer in time
    """
    port = free_port()
    environ = {**os.environ, **server.environ}
    with TemporaryFile() as log:
        try:
            process = subprocess.Popen(
                [*server.command, "--port", str(port)],
                env=environ, cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise InputError(
                f"{server.command[0]} cannot be started ({error.strerror}); run `make engines`."
            ) from None
        try:
            address = f"http://{HOST}:{port}"
            _await(process, address, patience, server.name)
            yield address
        except InputError as error:
            log.seek(0)
            said = log.read().decode(errors="replace").strip().splitlines()[-1:]
            raise InputError(f"{error} Its last line: {said[0] if said else 'none'}") from None
        finally:
            _end(process)


def _await(process: subprocess.Popen[bytes], address: str, patience: float, name: str) -> None:
    """Return when the server lists its models."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise InputError(f"{name} ended before it answered; read its log.")
        try:
            if httpx.get(f"{address}/v1/models", timeout=5, trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise InputError(f"{name} did not answer within {patience:g} s; close other programs.")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server and whatever it has started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
