"""A model is admitted only if its packed passes answer like plain ones."""

import pytest
from transformers import LlamaForCausalLM

from decoders import InputError, ModelPair
from tests.models import build


class DeafToPositions(LlamaForCausalLM):
    def forward(self, input_ids, position_ids=None, **others):
        return super().forward(input_ids, **others)


def test_silent_failure_is_caught():
    """A model that ignores positions runs, with wrong logits: the pass on admission finds out."""
    with pytest.raises(InputError, match="answers a packed pass with other logits"):
        ModelPair(DeafToPositions(build().config), None)
