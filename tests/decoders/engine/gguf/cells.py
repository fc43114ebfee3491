"""A made-up llama.cpp: cells, sequences and their rules, with a table of logits for a model.

The rules are those of llama-batch.cpp and llama-kv-cache.cpp; what breaks one fails the test.
"""

from dataclasses import dataclass, field

import numpy as np

from decoders import ModelPair
from decoders.engine.gguf.model import GgufModel


@dataclass
class Cell:
    token: int
    position: int
    sequences: set[int]


class Cells:
    """A context of a made-up model, whose logits depend on the text that a token sees."""

    def __init__(self, weights, rows, sequences):
        self.weights, self.rows, self.sequences = weights, rows, sequences
        self.cells: list[Cell] = []
        self.calls, self.closed = 0, False

    def of(self, sequence):
        assert 0 <= sequence < self.sequences
        return [cell for cell in self.cells if sequence in cell.sequences]

    def share(self, source, to, length):
        assert not self.of(to)
        for cell in self.of(source):
            if cell.position < length:
                cell.sequences.add(to)

    def cut(self, sequence, length):
        assert not self.closed
        for cell in self.of(sequence):
            if cell.position >= length:
                cell.sequences.remove(sequence)
        self.cells = [cell for cell in self.cells if cell.sequences]

    def clear(self):
        assert not self.closed
        self.cells = []

    def close(self):
        assert not self.closed
        self.closed = True

    def decode(self, batch):
        assert not self.closed
        self.calls += 1
        lengths = {s: len(self.of(s)) for s in range(self.sequences)}
        rows = []
        for token, position, sequences, wanted in zip(
            batch.tokens, batch.positions, batch.sequences, batch.wanted, strict=True
        ):
            # "sequence is coupled, but have diverged"
            assert len({lengths[s] for s in sequences}) == 1
            for sequence in sequences:
                # "the sequence positions remain consecutive"
                assert len(self.of(sequence)) == position
            self.cells.append(Cell(token, position, set(sequences)))
            assert len(self.cells) <= self.rows
            if wanted:
                seen = {c.position: c.token for c in self.of(sequences[0])}
                rows.append(self.weights.logits([seen[i] for i in range(position + 1)]))
        return np.array(rows, dtype=np.float32).reshape(len(rows), self.weights.vocabulary)


@dataclass(eq=False)
class Table:
    """A file of a made-up model; see `decoders.engine.gguf.model.Weights`."""

    seed: int = 0
    vocabulary: int = 12
    sequences: int = 256
    positions: int = 512
    noise: float = 0.0
    source, kind, stored, computed = "made-up.gguf", "table", "F16", "llama.cpp"
    parameters, weight_bytes, row_bytes = 100, 200, 16
    ends: list[int] = field(default_factory=list)
    made: list[Cells] = field(default_factory=list)

    def context(self, rows):
        self.made.append(Cells(self, max(rows, 8), self.sequences))
        return self.made[-1]

    def logits(self, text):
        """The logits after a text; a table with noise is near the one without."""
        rows = [
            scale * np.random.default_rng([*text, seed]).normal(size=self.vocabulary)
            for seed, scale in ((1, 2.0), (self.seed + 2, self.noise))
        ]
        return sum(rows)


def made_up(sequences=256, vocabulary=12, ends=()) -> ModelPair:
    target = Table(vocabulary=vocabulary, sequences=sequences, ends=list(ends))
    draft = Table(1, vocabulary, sequences, noise=0.7)
    return ModelPair(GgufModel(target, "target"), GgufModel(draft, "draft"))
