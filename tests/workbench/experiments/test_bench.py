"""What a bench tells of a pair, which the ids of cells contain."""

import pytest
import torch

from decoders import load_pair
from workbench.experiments.workers import Bench, weights
from workbench.models.presets import PairChoice

CHOICES = [PairChoice(device="cpu", quantization=kind) for kind in (None, "int8")]


@pytest.mark.usefixtures("small")
def test_quantised_weights_have_a_hash_of_their_own():
    """Quantised weights of a folder or of the embedded pair ended an experiment in a breakdown."""
    pytest.importorskip("torchao")

    def told(choice: PairChoice) -> dict:
        pair = load_pair(device=choice.device, quantization=choice.quantization)
        return Bench(lambda _: pair).facts(choice)["identity"]

    plain, int8 = map(told, CHOICES)
    assert told(CHOICES[1]) == int8
    assert plain["target"] != int8["target"]
    assert plain["draft"] != int8["draft"]


def test_weights_whose_name_stays_differ_by_how_they_were_loaded(pair):
    """A revision of the hub names the file, so int8 weights had the ids of plain ones."""
    plain, int8 = (Bench(lambda _: pair).facts(choice)["identity"] for choice in CHOICES)
    assert int8 == {**plain, "quantization": "int8"}


def test_a_scale_that_is_one_number_is_hashed():
    """Files that come quantised keep such scales, and ended an experiment in a breakdown."""
    model = torch.nn.Linear(2, 2)
    model.register_buffer("scale", torch.tensor(1.0))
    one = weights(model)
    model.scale += 1
    assert weights(model) != one
