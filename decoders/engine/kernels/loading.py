"""The compiled kernels, if this machine can have them (kernels)."""

import logging
import zlib
from functools import lru_cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from decoders.devices import device_of
from decoders.distribution import PLAIN, Scan
from decoders.errors import first_line
from decoders.shapes import Logits

NEEDED = {"x86_64": ("avx2", "fma", "f16c"), "aarch64": (), "arm64": ()}


@lru_cache(maxsize=1)
def kernels() -> Any:
    """The kernels, compiled or read from numba's cache at the first call; None without them.

    Then one warning says why. They are kept in the user's cache folder (or in NUMBA_CACHE_DIR); if
    it is read-only, they are compiled in each process.
    """
    try:
        return _made()
    # numba may be missing or not fit numpy, and compilation may fail in any way.
    except Exception as error:
        logging.getLogger("decoders").warning(
            "Passes on this CPU take longer than they could: %s.", first_line(error)
        )
        return None


def scan_for(rows: Logits | np.ndarray) -> Scan:
    """What looks through these rows: kernels if they can, whoever made the rows; else numpy."""
    if isinstance(rows, np.ndarray):
        fits = rows.dtype == np.float32 and rows.flags.c_contiguous
    else:
        on_host = device_of(rows.device).on_host
        fits = rows.dtype == torch.float32 and on_host and rows.is_contiguous()
    return entries.scan if fits and (entries := kernels()) else PLAIN


def _made() -> SimpleNamespace:
    try:
        from llvmlite import binding
    except ImportError:
        raise ImportError("numba is not installed (pip install numba)") from None
    processor = binding.get_process_triple().split("-")[0]
    able = binding.get_host_cpu_features()
    if processor not in NEEDED or not all(able.get(name) for name in NEEDED[processor]):
        raise ImportError("the kernels are for AVX2 and for Arm")
    import numba
    from platformdirs import user_cache_dir

    from decoders.engine.kernels import program, select, tiles

    sources = [f for f in files("decoders.engine.kernels").iterdir() if f.name.endswith(".py")]
    stamp = zlib.crc32(b"".join(f.read_bytes() for f in sorted(sources, key=lambda f: f.name)))
    # Beside the source they would stay when the package is uninstalled. What numba compares is the
    # file of each of these functions, without those that they call.
    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = f"{before or user_cache_dir('decoding-workbench')}/{stamp:08x}"
    try:
        functions = program.compiled(cache=True)
    except (RuntimeError, OSError):  # the folder is not writable
        functions = program.compiled()
    finally:
        config.CACHE_DIR = before
    run, passes, multiply, serve, alike, *scans = functions
    return SimpleNamespace(
        run=program.shared(run, serve),
        passes=program.shared(passes, serve),
        multiply=program.shared(multiply, serve),
        in_blocks=tiles.in_blocks,
        parts=tiles.PARTS,
        alike=alike,
        scan=select.CompiledScan(*scans),
    )
