"""A large target for a draft: it computes the draft's distributions, and less so when scaled up."""

import sys

import pytest
import torch
import transformers

import decoders
from tests.models import build
from tools.engines import enlarge

IDS = torch.tensor([[5, 9, 3, 17, 5, 40, 2]])


@pytest.fixture
def draft():
    """A tiny Llama with grouped heads."""
    return build("llama", torch.float32).half().float()


def test_it_is_the_draft_until_it_is_scaled(draft):
    target = enlarge.enlarged(draft, layers=4)
    assert target.config.hidden_size == 4 * draft.config.hidden_size
    assert target.config.num_hidden_layers == 4
    wanted = draft(IDS).logits
    torch.testing.assert_close(target(IDS).logits, wanted, rtol=1e-2, atol=1e-2)
    enlarge.scale(target, 2, 1.0)
    assert (target(IDS).logits - wanted).abs().max() > 0.1


def test_a_larger_scale_lets_fewer_draft_tokens_be_accepted(draft):
    target = enlarge.enlarged(draft, layers=4)
    rates = []
    for factor in (0.0, 1.0, 8.0):
        enlarge.scale(target, 2, factor)
        rates.append(enlarge.acceptance(target, draft, [[5, 9, 3], [17, 5, 40]]))
    assert rates[0] > 0.9 > rates[1] > rates[2]


def test_the_scale_nearest_to_the_acceptance_is_kept(monkeypatch, tmp_path, capsys):
    """The acceptance is made up: one less the square of the scale."""
    scaled = []

    def scale(target, kept, factor):
        scaled.append(factor)

    monkeypatch.setattr(enlarge, "scale", scale)
    monkeypatch.setattr(enlarge, "acceptance", lambda *_: 1 - scaled[-1] ** 2)
    asked = [str(tmp_path), "--layers", "2", "--acceptance", "0.7"]
    monkeypatch.setattr(sys, "argv", ["enlarge", *asked])
    enlarge.main()
    assert scaled[-1] == min(scaled[1:-1], key=lambda factor: abs(0.3 - factor**2))
    assert len(capsys.readouterr().out.splitlines()) == enlarge.TRIES
    pair = decoders.load_pair(tmp_path)
    assert isinstance(pair.target, transformers.LlamaForCausalLM)
    assert pair.tokenizer.decode(pair.tokenizer("Once").input_ids) == "Once"
