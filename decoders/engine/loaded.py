"""What a model has in common however it is run: the caller's weights, behind a twin that makes the passes."""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel

from decoders.engine.linear import copied_bytes
from decoders.engine.twin import refuse_changes


class Loaded:
    """model  the caller's;   own  size of its vocabulary;   vocabulary  size of the one that it answers for;   name  for messages"""

    model: PreTrainedModel
    own: int
    vocabulary: int
    name: str
    _twin: PreTrainedModel

    @property
    def copied_bytes(self) -> int:
        """What copies of weights take that its linear layers have made so far."""
        return copied_bytes(self._twin)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    def over_vocabulary(self, logits: Tensor) -> Tensor:
        """The model's own logits (..., own) over the vocabulary of the pair: (..., V)."""
        missing = self.vocabulary - self.own
        return logits[..., : self.vocabulary] if missing <= 0 else pad(logits, (0, missing), value=-math.inf)

    def refuse_changes(self) -> None:
        """Raise InputError if modules of the caller's model are no longer those that were tested."""
        refuse_changes(self.model, self._twin, self.name)
