import pytest
import torch

from decoders import InputError, load_pair
from decoders.engine.loading import load
from tests.decoders.engine.loading.test_load import save


def test_devices(tmp_path, monkeypatch):
    model = save(tmp_path / "model")
    assert load_pair(model, model, device="cpu", draft_device="cpu").draft.device == torch.device(
        "cpu"
    )
    with pytest.raises(InputError, match="There is no device 'cuda:77' here"):
        load_pair(model, model, draft_device="cuda:77")
    monkeypatch.setattr(load, "find_spec", lambda name: None)
    with pytest.raises(
        InputError,
        match="device_map='auto' needs the package accelerate; install it with `pip install",
    ):
        load_pair(model, device_map="auto")
    with pytest.raises(InputError, match="device_map='auto' chooses the devices; leave device out"):
        load_pair(model, device="cpu", device_map="auto")
    with pytest.raises(InputError, match="device_map must be 'auto' or None, not 'balanced'"):
        load_pair(model, device_map="balanced")
