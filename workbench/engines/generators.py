"""Which generator makes load: the one of the environment, one that is installed, or our own."""

import os
import shutil
from collections.abc import Mapping

from workbench.engines.load import Generator, Own
from workbench.engines.vllm_bench import VllmBench

VARIABLE, OWN = "WORKBENCH_LOAD", "own"


def generator(environ: Mapping[str, str] = os.environ) -> Generator:
    """The generator.

    Args:
        environ: WORKBENCH_LOAD is a `vllm` program, or "own" for ours; without it a `vllm` on PATH
            is taken if there is one

    Raises:
        InputError: if the program cannot be run
    """
    program = environ.get(VARIABLE) or shutil.which("vllm", path=environ.get("PATH"))
    return Own() if program in (None, OWN) else VllmBench.found(str(program), environ)
