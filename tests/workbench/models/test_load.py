import os

import httpx
import pytest
import torch
from huggingface_hub.errors import GatedRepoError
from transformers import LlamaConfig

from decoders import InputError
from decoders.engine.loading import load as loading
from workbench.models import keeper, presets
from workbench.models.keeper import load
from workbench.models.presets import PAIRS, PairChoice


@pytest.fixture(scope="module")
def folder(tmp_path_factory, pair):
    """The tiny pair as a folder, and next to it a copy of the target with pickled weights only."""
    folder = tmp_path_factory.mktemp("models")
    for role in ("target", "draft"):
        getattr(pair, role).save_pretrained(folder / role)
        pair.tokenizer.save_pretrained(folder / role)
    pickled = folder / "pickled"
    pair.target.config.save_pretrained(pickled)
    pair.tokenizer.save_pretrained(pickled)
    torch.save(pair.target.state_dict(), pickled / "pytorch_model.bin")
    return folder


@pytest.fixture
def loaded(monkeypatch):
    """Calls of load_pair, which then loads nothing."""
    calls = []
    monkeypatch.setattr(
        keeper, "load_pair", lambda *names, **options: calls.append((names, options))
    )
    return calls


def test_a_folder_of_ones_own_is_loaded(folder, pair):
    found = load(PairChoice(str(folder)))
    assert torch.equal(found.target.lm_head.weight, pair.target.lm_head.weight)
    assert found.draft is not None
    assert load(PairChoice(str(folder / "target"), dtype="bfloat16")).target.dtype == torch.bfloat16


def test_own_models_are_read_from_safetensors_only(folder):
    with pytest.raises(InputError, match="has no weights as safetensors"):
        load(PairChoice(str(folder / "pickled")))


def test_presets_may_have_pickled_weights_at_their_pinned_revision(loaded, monkeypatch):
    monkeypatch.setattr(presets, "available_bytes", lambda device: None)
    tiny = LlamaConfig(
        vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    monkeypatch.setattr(loading.AutoConfig, "from_pretrained", lambda name, **options: tiny)
    choice = PAIRS["OPT-13B + OPT-125M"].choice("cpu", "bfloat16")
    load(choice)
    ((names, options),) = loaded
    assert names == (choice.target, choice.draft)
    assert options["safetensors"] is None
    load(PairChoice("facebook/opt-13b", None, "cpu"))
    assert loaded[1][1]["safetensors"] is True


def test_strangers_may_load_presets_only(loaded, folder):
    with pytest.raises(InputError, match="ALLOW_CUSTOM_MODELS=1"):
        load(PairChoice(str(folder)), custom_allowed=False)
    load(PairChoice(), custom_allowed=False)
    load(PairChoice(str(folder)))
    assert [names for names, _ in loaded] == [(None, None), (str(folder), None)]


@pytest.mark.parametrize("own", [True, False])
def test_what_does_not_fit_is_refused_before_anything_is_loaded(loaded, folder, monkeypatch, own):
    monkeypatch.setattr(presets, "CACHE_BYTES", 0)
    monkeypatch.setattr(presets, "available_bytes", lambda device: 1000)
    with pytest.raises(
        InputError, match=r"does not fit: its weights take .* in float32 and cpu has"
    ):
        load(
            PairChoice(str(folder), device="cpu")
            if own
            else PAIRS["Qwen3-8B + Qwen3-0.6B"].choice("cpu")
        )
    assert loaded == []


def test_quantised_weights_need_less_and_reach_the_loader(loaded, monkeypatch):
    monkeypatch.setattr(presets, "CACHE_BYTES", 0)
    monkeypatch.setattr(presets, "available_bytes", lambda device: 20 * 10**9)
    qwen = PAIRS["Qwen3-8B + Qwen3-0.6B"]
    with pytest.raises(InputError, match="does not fit"):
        load(qwen.choice("cpu", "float32"))
    load(qwen.choice("cpu", "float32", "int8"))
    assert loaded[0][1]["quantization"] == "int8"


def test_running_out_of_memory_while_loading_is_no_traceback(folder, monkeypatch):
    def full(*names, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(keeper, "load_pair", full)
    with pytest.raises(InputError, match="does not fit in the memory of cpu"):
        load(PairChoice(str(folder), device="cpu"))


def test_a_gated_model_says_that_a_token_is_needed_and_where_it_goes(monkeypatch):
    answer = httpx.Response(403, request=httpx.Request("GET", "https://huggingface.co"))

    def refused(*names, **options):
        try:
            raise OSError("You are trying to access a gated repo.") from GatedRepoError(
                "403", response=answer
            )
        except OSError as error:
            raise InputError("meta-llama/Llama-2-13b-hf could not be loaded") from error

    monkeypatch.setattr(presets, "available_bytes", lambda device: None)
    monkeypatch.setattr(keeper, "load_pair", refused)
    with pytest.raises(
        InputError,
        match=r"is gated: accept its licence .* `hf auth login` or in the variable HF_TOKEN",
    ):
        load(PAIRS["Llama-2-13B + Llama-68M"].choice("cpu"))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (PairChoice("/no/such/folder"), "There is no folder /no/such/folder; name one"),
        (PairChoice(device="quantum"), "There is no device 'quantum' here"),
    ],
)
def test_what_is_not_there_is_named(choice, message):
    with pytest.raises(InputError, match=message):
        load(choice)


def test_a_dtype_that_is_none_is_named(folder):
    with pytest.raises(InputError, match="dtype must be"):
        load(PairChoice(str(folder), dtype="int"))


def test_the_hub_is_not_asked_to_convert_weights():
    assert os.environ["DISABLE_SAFETENSORS_CONVERSION"] == "1"
