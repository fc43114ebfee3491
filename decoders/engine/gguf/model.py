"""A model in a GGUF file, whose passes llama.cpp computes (GgufModel)."""

import math
import threading
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from transformers import GenerationConfig

from decoders.engine.gguf.passes import GgufPasses
from decoders.engine.gguf.paths import Context
from decoders.engine.protocols import Layers, Passes
from decoders.errors import InputError


class Weights(Protocol):
    """A GGUF file that llama.cpp has loaded.

    Attributes:
        source: its path
        kind: its architecture
        stored: how its weights are stored, as "Q8_0"
        computed: what computes it, with its version
        vocabulary: the size of its vocabulary
        positions: the most tokens that it was trained on
        parameters: their number
        weight_bytes: bytes of its weights
        row_bytes: bytes of a token's keys and values
        ends: the tokens that end a text
    """

    source: str
    kind: str
    stored: str
    computed: str
    vocabulary: int
    positions: int
    parameters: int
    weight_bytes: int
    row_bytes: int
    ends: list[int]

    def context(self, rows: int) -> Context:
        """A new context with at least this many cells."""


@dataclass(frozen=True)
class Header:
    """What a file says of its model, by the names that configs of transformers have for it."""

    name_or_path: str
    model_type: str
    vocab_size: int

    def get_text_config(self) -> "Header":
        return self


class GgufModel:
    """A model in a GGUF file; it is a `decoders.engine.protocols.Model`.

    llama.cpp computes its logits in its way: from the weights as they are stored, with keys and
    values in float16, and by other kernels for one token than for several. The decoders see what
    they get of any model, float32 logits in memory of the host.

    Args:
        weights: the loaded file
        role: "target" or "draft", for messages
        vocabulary: the size of the vocabulary that it answers for; None for its own

    Attributes:
        own: the size of its vocabulary
        config: the file's path and its architecture
        generation_config: the tokens that end a text
        reaches, spread: as in other models: every layer sees everything, in one place
    """

    packed, why, reaches, spread = True, "", (None,), False
    reads: Layers = ()
    # Keys and values have this dtype, which rounds more than the float32 of the logits.
    device, dtype, copied_bytes = torch.device("cpu"), torch.float16, 0

    def __init__(self, weights: Weights, role: str, vocabulary: int | None = None):
        self.weights = weights
        self.config = Header(weights.source, weights.kind, weights.vocabulary)
        self.name = f"{role} model {weights.source}"
        self.own, self.vocabulary = weights.vocabulary, vocabulary or weights.vocabulary
        self.positions: int | None = weights.positions
        self.weight_bytes, self.row_bytes = weights.weight_bytes, weights.row_bytes
        self.generation_config = GenerationConfig(eos_token_id=weights.ends or None)
        self._idle: list[Context] = []
        self._lending = threading.Lock()

    @property
    def engine_name(self) -> str:
        """How it runs, for people."""
        return f"in {self.weights.computed}, with weights in {self.weights.stored}"

    def parameters(self) -> list[torch.Tensor]:
        """One tensor without memory, for those who count the numbers of a model."""
        return [torch.empty(self.weights.parameters, dtype=torch.int8, device="meta")]

    def engine(self, rows: int = 0, most_rows: int | None = None) -> Passes:
        return GgufPasses(self, rows, most_rows)

    def lend(self, rows: int, most_rows: int | None) -> Context:
        """An empty context for a run.

        Args:
            rows: the least number of its rows
            most_rows: the most, or None for no limit
        """
        if most_rows is not None:
            return self.weights.context(most_rows)
        with self._lending:
            idle = self._idle.pop() if self._idle else None
        if idle is not None and idle.rows >= rows:
            return idle
        if idle is not None:
            idle.close()
        return self.weights.context(rows)

    def take_back(self, context: Context, most_rows: int | None) -> None:
        """Keep a context that no request uses any more, for the next run; making one takes time."""
        if most_rows is not None:
            context.close()
            return
        context.clear()
        with self._lending:
            *smaller, largest = sorted([*self._idle, context], key=lambda idle: idle.rows)
            self._idle = [largest]
        for each in smaller:
            each.close()

    def over_vocabulary(self, logits: np.ndarray) -> np.ndarray:
        """Cut or pad the model's own logits (n, own) to the vocabulary of the pair: (n, V)."""
        missing = self.vocabulary - self.own
        if missing <= 0:
            return logits[:, : self.vocabulary]
        return np.pad(logits, ((0, 0), (0, missing)), constant_values=-math.inf)

    def refuse_changes(self) -> None:
        """Nothing changes a file that is loaded."""

    def refuse_features(self, layers: Layers) -> None:
        if layers:
            raise InputError(
                f"The {self.name} gives no hidden states, which llama.cpp keeps to itself; take a "
                "decoder and a draft that read text alone, or load the target from safetensors."
            )
