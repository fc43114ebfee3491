"""Loading pairs, and one sentence for whatever cannot be loaded."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, T5Config

from decoders import InputError, default_device, default_dtype, generate, load_pair
from decoders.engine import load
from tests.models import VOCABULARY, build, build_tokenizer


def save(folder, seed=0, words=(), **changes):
    build(dtype=torch.float32, seed=seed, **changes).save_pretrained(folder)
    build_tokenizer(words).save_pretrained(folder)
    return folder


def test_load_a_folder_with_two_models(tmp_path):
    save(tmp_path / "target"), save(tmp_path / "draft", seed=1)
    pair = load_pair(tmp_path)
    assert pair.target.dtype == pair.draft.dtype == torch.float32
    assert not torch.equal(pair.target.lm_head.weight, pair.draft.lm_head.weight)
    assert generate(pair, "abc", "speculative", max_new_tokens=6).text
    assert pair.end_tokens == {pair.tokenizer.eos_token_id}


def test_what_auto_means(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert default_device() == torch.device("cpu")
    assert default_dtype(default_device()) == torch.float32
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert default_device() == torch.device("cuda")


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [((7, 0), torch.float16), ((7, 5), torch.float16), ((8, 0), torch.bfloat16), ((9, 0), torch.bfloat16)],
)
def test_what_auto_means_on_cuda(monkeypatch, capability, dtype):
    """A T4 or V100 computes bfloat16 very slowly, and got it."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert default_dtype(torch.device("cuda")) == dtype


def test_load_names_and_dtypes(tmp_path):
    a, b = save(tmp_path / "a"), save(tmp_path / "b", seed=1)
    assert load_pair(a).draft is None
    pair = load_pair(str(a), str(b), dtype="bfloat16", device="cpu")
    assert pair.target.dtype == pair.draft.dtype == torch.bfloat16
    assert load_pair(a, dtype=torch.float64).target.dtype == torch.float64
    for dtype in ("int8", "float33", 16):
        with pytest.raises(InputError, match="dtype must be 'auto', 'float32', 'bfloat16', 'float16' or 'float64'"):
            load_pair(a, dtype=dtype)
    for device in ("cuda:77", "gpu"):
        with pytest.raises(InputError, match=f"There is no device '{device}' here"):
            load_pair(a, device=device)


def test_vocabularies_that_differ_by_tokens(tmp_path):
    """Of one size, which is all that the configs tell: the tokenizers are compared before weights are loaded."""
    a, b = save(tmp_path / "a", words=("one",)), save(tmp_path / "b", words=("two",))
    (b / "model.safetensors").unlink()
    with pytest.raises(
        InputError, match=r"first at token 1 is 'one' in the target and 'two' in the draft; take a draft"
    ):
        load_pair(a, b)
    c = save(tmp_path / "c", vocab_size=30)
    with pytest.raises(InputError, match=f"different vocabularies: 30 and {VOCABULARY} tokens"):
        load_pair(a, c)


def test_a_checkout_without_the_embedded_models(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "EMBEDDED", tmp_path / "stories")
    with pytest.raises(InputError, match=f"missing from {tmp_path}/stories; train them with `make train`, or"):
        load_pair()


def test_missing_models(tmp_path):
    with pytest.raises(InputError, match=r"There is no folder /no/such/folder; name one"):
        load_pair("/no/such/folder")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty could not be loaded: ") as caught:
        load_pair(tmp_path / "empty")
    assert "\n" not in str(caught.value)
    broken = save(tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match="broken could not be loaded: ") as caught:
        load_pair(broken)
    assert "\n" not in str(caught.value)


def without(folder, *parts):
    """Take the weights whose names hold one of `parts` out of a saved model."""
    file = folder / "model.safetensors"
    weights = {name: w for name, w in load_file(file).items() if not any(part in name for part in parts)}
    save_file(weights, file, metadata={"format": "pt"})
    return folder


def test_missing_weights(tmp_path):
    """Transformers draws random ones for them, so that two loads of a checkpoint without its last layer answered differently."""
    headless = without(save(tmp_path / "headless"), "lm_head")
    with pytest.raises(
        InputError, match=r"headless has no weights for lm_head\.weight; load a folder or revision that"
    ):
        load_pair(headless)
    cut = without(save(tmp_path / "cut"), "layers.1.")
    with pytest.raises(
        InputError, match=r"cut has no weights for model\.layers\.1\.\S+, model\.layers\.1\.\S+ and 7 more; "
    ):
        load_pair(save(tmp_path / "whole"), cut)
    tied = save(tmp_path / "tied", tie_word_embeddings=True)
    assert load_pair(tied).target.lm_head.weight is not None


def test_a_draft_padded_to_another_size(tmp_path):
    """Of one tokenizer, whose tokens both have: once refused as of another family."""
    pair = load_pair(save(tmp_path / "a"), save(tmp_path / "b", vocab_size=VOCABULARY + 13))
    assert generate(pair, "abc", "speculative", max_new_tokens=6).text


def test_the_hub_cannot_be_reached(monkeypatch):
    def offline(*args, **kwargs):
        raise OSError(
            "We couldn't connect to 'https://huggingface.co' to load the files.\nCheck your internet connection."
        )

    monkeypatch.setattr(AutoConfig, "from_pretrained", offline)
    with pytest.raises(
        InputError, match=r"^nobody/nothing could not be loaded: We couldn't connect to .* the files\.$"
    ):
        load_pair("nobody/nothing")


def test_encoder_decoder_is_refused_before_weights(tmp_path):
    T5Config(vocab_size=VOCABULARY).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="is an encoder-decoder model"):
        load_pair(tmp_path)
