"""A context of llama.cpp's library (LlamaContext)."""

import ctypes
import weakref
from typing import Any

import numpy as np
import torch

from decoders.engine.gguf.paths import Batch
from decoders.errors import InputError, ModelError

# Of one call of llama.cpp, which computes 512 of them at a time; no fewer than its sequences.
TOKENS = 2048


def freed(llama: Any, context: Any, batch: Any, file: Any) -> None:
    """Free a context; its file is kept until then, for llama.cpp reads the model meanwhile."""
    llama.llama_free(context)
    llama.llama_batch_free(batch)


class LlamaContext:
    """A context of llama.cpp; see `decoders.engine.gguf.paths.Context`.

    Args:
        file: the model (`decoders.engine.gguf.library.File`)
        rows: the least number of cells
    """

    def __init__(self, file: Any, rows: int):
        self.llama, self.file = file.llama, file  # the model stays as long as a context of it
        settings = self.llama.llama_context_default_params()
        settings.n_ctx, settings.n_batch = max(rows, 256), TOKENS
        # One buffer for all sequences, so that they can share cells.
        settings.kv_unified = True
        settings.n_seq_max = self.sequences = self.llama.llama_max_parallel_sequences()
        self.pointer = self.llama.llama_init_from_model(file.pointer, settings)
        if not self.pointer:
            raise InputError(
                f"llama.cpp has no memory for {rows} tokens of {file.source}; take shorter texts, "
                "fewer at a time, or a smaller model."
            )
        self.rows: int = self.llama.llama_n_ctx(self.pointer)
        self._most: int = self.llama.llama_n_batch(self.pointer)
        self._batch = batch = self.llama.llama_batch_init(self._most, 0, self.sequences)
        # Looked up once: each look-up makes an object.
        self._tokens, self._positions, self._wanted = batch.token, batch.pos, batch.logits
        self._counts, self._sets = batch.n_seq_id, batch.seq_id
        self._free = weakref.finalize(self, freed, self.llama, self.pointer, batch, file)
        self._memory = self.llama.llama_get_memory(self.pointer)
        self._threads = 0

    def share(self, source: int, to: int, length: int) -> None:
        self.llama.llama_memory_seq_cp(self._memory, source, to, 0, length)

    def cut(self, sequence: int, length: int) -> None:
        self.llama.llama_memory_seq_rm(self._memory, sequence, length, -1)

    def clear(self) -> None:
        self.llama.llama_memory_clear(self._memory, False)

    def close(self) -> None:
        self._free()

    def decode(self, batch: Batch) -> np.ndarray:
        if (threads := torch.get_num_threads()) != self._threads:
            self.llama.llama_set_n_threads(self.pointer, threads, threads)
            self._threads = threads
        count, most = len(batch.tokens), self._most
        parts = [self._decode(batch, slice(i, i + most)) for i in range(0, count, most)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _decode(self, batch: Batch, part: slice) -> np.ndarray:
        given, wanted = self._batch, batch.wanted[part]
        given.n_tokens, sets = len(wanted), batch.sequences[part]
        for i, (token, position, sequences, asked) in enumerate(
            zip(batch.tokens[part], batch.positions[part], sets, wanted, strict=True)
        ):
            self._tokens[i], self._positions[i], self._wanted[i] = token, position, asked
            self._counts[i], into = len(sequences), self._sets[i]
            for j, sequence in enumerate(sequences):
                into[j] = sequence
        if code := self.llama.llama_decode(self.pointer, given):
            raise ModelError(
                f"llama.cpp failed in a pass of {self.file.source} (its code is {code}); try a "
                "smaller batch or shorter texts."
            )
        shape = sum(wanted), self.file.vocabulary
        if not shape[0]:
            return np.empty(shape, dtype=np.float32)
        logits = self.llama.llama_get_logits(self.pointer)
        kind = ctypes.c_float * (shape[0] * shape[1])
        values: Any = kind.from_address(ctypes.addressof(logits.contents))
        # The next call overwrites them.
        return np.frombuffer(values, dtype=np.float32).reshape(shape).copy()
