"""Start servers of other engines on this machine, with a pair of models, and end them."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryFile

from decoders import InputError
from tools.engines.places import LLAMA_CPP_PYTHON, ROOT, VLLM, Places
from workbench.engines.addresses import Engine
from workbench.engines.guard import guarded
from workbench.engines.starting import HOST, PATIENCE, free_port, wait_for

PAIR = "assets/stories"
NAME = "stories"  # of the model, where we may choose it


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
    words, environ = [*server.command, "--port", str(port)], {**os.environ, **server.environ}
    if not shutil.which(words[0]):
        raise InputError(f"{words[0]} cannot be started (it is not there); run `make engines`.")
    address = f"http://{HOST}:{port}"
    with TemporaryFile() as log, guarded(words, environ, log, ROOT) as process:
        wait_for(process, Engine(server.name, address), patience, log)
        yield address
