"""llama.cpp's library (llama-cpp-python), and a file that it has loaded (File)."""

import ctypes
import logging
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from decoders.engine.gguf.context import LlamaContext
from decoders.errors import InputError, first_line, refuse

PACKAGE = "llama-cpp-python"
ERROR = 4  # a level of llama.cpp's log
# Kinds of positions with several numbers for a token.
SEVERAL_POSITIONS = 8, 24, 40


def library(name: str) -> Any:
    """The module with llama.cpp's functions, silent unless its logger has a level.

    Args:
        name: the file that needs it, for the message

    Raises:
        InputError: if it is not installed
    """
    if find_spec("llama_cpp") is None:
        raise InputError(
            f"{name} is a GGUF file, which needs the package {PACKAGE}; install it with "
            "`pip install decoding-workbench[gguf]`, or name the model that the file was made of."
        )
    try:
        found = import_module("llama_cpp")
    # It looks for its shared library with the errors of several modules.
    except Exception as error:
        raise InputError(
            f"The package {PACKAGE} cannot load its library ({error}); install it again."
        ) from None
    if logging.getLogger(PACKAGE).level == logging.NOTSET:
        # It would print everything.
        logging.getLogger(PACKAGE).setLevel(logging.CRITICAL)
    return found


class File:
    """A GGUF file that llama.cpp has loaded; see `decoders.engine.gguf.model.Weights`.

    Args:
        source: its path

    Raises:
        InputError: if it cannot be read, or its model does not read trees
    """

    def __init__(self, source: str):
        self.source = source
        with Path(source).open("rb") as file:
            begins = file.read(4)
        if begins != b"GGUF":
            raise InputError(f"{source} is no GGUF file: it begins otherwise; download it again.")
        self.llama = llama = library(source)
        llama.llama_backend_init()
        with errors(llama) as reasons:
            self.pointer = llama.llama_model_load_from_file(
                source.encode(), llama.llama_model_default_params()
            )
        if not self.pointer:
            why = f" ({reasons[0]})" if reasons else ""
            raise InputError(
                f"llama.cpp cannot load {source}{why}; download it again, or update {PACKAGE} "
                f"{version(PACKAGE)}."
            )
        weakref.finalize(self, llama.llama_model_free, self.pointer)
        self.vocab = llama.llama_model_get_vocab(self.pointer)
        self.kind = self.said("general.architecture")
        self.computed = f"llama.cpp ({PACKAGE} {version(PACKAGE)})"
        self.stored = stored(llama, llama.llama_model_ftype(self.pointer))
        self.vocabulary: int = llama.llama_vocab_n_tokens(self.vocab)
        self.positions: int = llama.llama_model_n_ctx_train(self.pointer)
        self.parameters: int = llama.llama_model_n_params(self.pointer)
        self.weight_bytes: int = llama.llama_model_size(self.pointer)
        self.row_bytes = self._row_bytes()
        self.ends = [
            token for token in range(self.vocabulary) if llama.llama_vocab_is_eog(self.vocab, token)
        ]
        self._refuse_other_kinds()

    def said(self, key: str) -> str:
        """A value of the file's header as text; "" if there is none."""
        text = ctypes.create_string_buffer(4096)
        length = self.llama.llama_model_meta_val_str(self.pointer, key.encode(), text, len(text))
        return text.value.decode(errors="replace") if length >= 0 else ""

    def _row_bytes(self) -> int:
        """Bytes of a token's keys and values in all layers, in float16."""
        llama, model = self.llama, self.pointer
        size = llama.llama_model_n_embd(model) // max(llama.llama_model_n_head(model), 1)
        sizes = [
            int(self.said(f"{self.kind}.attention.{name}_length") or size)
            for name in ("key", "value")
        ]
        return (
            2
            * sum(sizes)
            * llama.llama_model_n_head_kv(model)
            * int(llama.llama_model_n_layer(model))
        )

    def _refuse_other_kinds(self) -> None:
        llama, model, fix = self.llama, self.pointer, "load the model from safetensors"
        refuse(
            (
                llama.llama_model_is_recurrent(model) or llama.llama_model_is_hybrid(model),
                f"{self.source} has recurrent layers, of which llama.cpp keeps one state for a "
                f"sequence, so drafts cannot branch; {fix}.",
            ),
            (
                llama.llama_model_rope_type(model) in SEVERAL_POSITIONS,
                f"{self.source} has positions of several numbers (M-RoPE), with which drafts that "
                f"branch have not been tried; {fix}.",
            ),
            (
                llama.llama_model_n_swa(model) > 0,
                f"{self.source} has layers with a sliding window, whose cells llama.cpp may use "
                f"again while a draft can still be rejected; {fix}.",
            ),
            (
                llama.llama_model_has_encoder(model) or llama.llama_model_is_diffusion(model),
                f"{self.source} is no causal language model; name one that generates text.",
            ),
        )

    def context(self, rows: int) -> LlamaContext:
        return LlamaContext(self, rows)


@contextmanager
def errors(llama: Any) -> Iterator[list[str]]:
    """The errors that llama.cpp logs meanwhile."""
    found: list[str] = []

    def note(level: int, text: bytes, _: Any) -> None:
        if level == ERROR:
            line = first_line(ValueError(text.decode(errors="replace")))
            found.append(line.split(": ", 1)[-1].removeprefix("error loading model: "))

    callback = llama.llama_log_callback(note)
    llama.llama_log_set(callback, None)
    try:
        yield found
    finally:
        llama.llama_log_set(import_module("llama_cpp._logger").llama_log_callback, None)


def stored(llama: Any, number: int) -> str:
    """The name of a file type, as "Q8_0"."""
    prefixes = "LLAMA_FTYPE_MOSTLY_", "LLAMA_FTYPE_ALL_"
    names = (
        name.removeprefix(prefix)
        for name in dir(llama)
        for prefix in prefixes
        if name.startswith(prefix) and getattr(llama, name) == number
    )
    return next(names, "an unnamed type")
