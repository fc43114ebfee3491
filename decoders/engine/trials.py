"""Trials of a model's passes that this machine has made before (TrialLog)."""

import hashlib
import json
import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from platformdirs import user_cache_dir
from transformers import PreTrainedModel

from decoders.devices import device_of
from decoders.engine.patches import patched
from decoders.engine.weights import is_plain

LIBRARIES = "torch", "transformers", "numpy", "numba", "llvmlite"
SWITCHES = "ATEN_", "DNNL_", "KMP_", "MKL_", "NUMBA_", "OMP_", "ONEDNN_", "TORCH_"
MOST = 200  # files


class TrialLog:
    """Which trials of a model have been passed here, where they take longer than all else.

    A trial compares passes with others that compute the same in another way. It is not repeated for
    the same weights, config, code, libraries, processor, threads and switches. One that has failed
    is.

    Args:
        facts: all that decides how the model computes
        folder: gets an empty file for each trial that has been passed; if it cannot be written to,
            the trial is made each time
    """

    def __init__(self, facts: str, folder: Path):
        self._facts, self._folder = facts, folder

    def _file(self, trial: str) -> Path:
        return self._folder / hashlib.sha256(f"{self._facts}\n{trial}".encode()).hexdigest()

    def passed(self, trial: str) -> bool:
        return self._file(trial).is_file()

    def note(self, trial: str) -> None:
        """Note that a trial has been passed."""
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file(trial).touch()
            every = sorted(self._folder.iterdir(), key=lambda file: file.stat().st_mtime)
            for old in every[:-MOST]:
                old.unlink(missing_ok=True)


def trials_of(
    model: PreTrainedModel, passes: str, most: int, folder: Path | None = None
) -> TrialLog | None:
    """The trials of a model that has just been loaded; None if they are to be made each time.

    Args:
        model: the model
        passes: how it runs, see `load_pair`
        most: bytes of weights whose reading takes less than the trials
        folder: see `TrialLog`; by default one of the user's cache
    """
    weights = model.state_dict().values()
    if not all(map(is_plain, weights)):  # the numbers of quantised ones are not read
        return None
    size = sum(weight.nbytes for weight in weights)
    if not device_of(model.device).on_host or size > most or patched(model):
        return None
    folder = folder or Path(user_cache_dir("decoding-workbench", appauthor=False)) / "trials"
    return TrialLog("\n".join((*_machine(), passes, *_of_model(model))), folder)


def _machine() -> Iterator[str]:
    sources = [file for file in _sources(files("decoders")) if file.name.endswith(".py")]
    code = b"".join(file.read_bytes() for file in sorted(sources, key=str))
    yield hashlib.sha256(code).hexdigest()
    yield from (f"{name} {_version(name)}" for name in LIBRARIES)
    yield f"{platform.python_version()} {platform.platform()} {torch.get_num_threads()}"
    yield torch.backends.cpu.get_cpu_capability()
    with suppress(ImportError):
        from llvmlite import binding

        yield f"{binding.get_host_cpu_name()} {sorted(binding.get_host_cpu_features().items())}"
    yield from sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith(SWITCHES))


def _sources(folder: Any) -> Iterator[Any]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _sources(each)
        else:
            yield each


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _of_model(model: PreTrainedModel) -> Iterator[str]:
    yield json.dumps(model.config.to_dict(), sort_keys=True, default=str)
    yield f"{model.config._attn_implementation} {device_of(model.device).products()}"
    # Its code may be another than the library's, if somebody has put it there.
    for kind in dict.fromkeys(type(module) for module in model.modules()):
        code = getattr(kind.forward, "__code__", None)
        yield f"{kind} {code and (code.co_filename, code.co_firstlineno)}"
    weights = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        weights.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        weights.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy())
    yield weights.hexdigest()
