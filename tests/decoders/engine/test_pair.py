"""Loading pairs, and refusing by name what cannot be run."""

import re

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, BloomConfig, FalconConfig, Gemma2Config, MistralConfig, T5Config

from decoders import InputError, ModelPair, default_device, default_dtype, generate, load_pair
from decoders.engine import pair as pair_module
from tests.models import VOCABULARY, build, build_tokenizer

TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": VOCABULARY}
WINDOWED = {**TINY, "intermediate_size": 32, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
REFUSED = {
    "bloom": (BloomConfig(**TINY), "(bloom) has an attention of its own"),
    "falcon": (FalconConfig(**TINY, alibi=True), "(falcon) has an attention of its own"),
    "gemma 2 as published": (Gemma2Config(**WINDOWED), "has sliding_attention layers; only full attention can be packed"),
    "mistral with a window": (MistralConfig(**WINDOWED, sliding_window=8), "sliding window, which the packed cache does not model"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_architectures(case):
    config, message = REFUSED[case]
    with pytest.raises(InputError, match=re.escape(message)):
        ModelPair(AutoModelForCausalLM.from_config(config), None)


def test_refused_encoder_decoder():
    config = T5Config(vocab_size=VOCABULARY, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    with pytest.raises(InputError, match="is an encoder-decoder model; load a causal language model"):
        ModelPair(transformers.T5ForConditionalGeneration(config), None)


def test_refused_attention_sinks():
    """What an attention is given beyond the usual is not silently left aside."""
    config = transformers.GptOssConfig(**WINDOWED, num_local_experts=2, layer_types=["full_attention"] * 2)
    with pytest.raises(InputError, match="attention takes s_aux, which the packed attention does not model"):
        ModelPair(AutoModelForCausalLM.from_config(config), None)


def test_refused_places():
    target = build()
    with pytest.raises(InputError, match=r"different devices, target on cpu and draft on meta; move one with \.to\(\)"):
        ModelPair(target, build().to("meta"))
    with pytest.raises(InputError, match="has no weights"):
        ModelPair(build().to("meta"), None)
    target.hf_device_map = {"model": 0, "lm_head": "cpu"}
    with pytest.raises(InputError, match="spread over several devices; load it on one"):
        ModelPair(target, None)
    with pytest.raises(InputError, match=r"A model of a pair is a transformers model, not 'gpt2'"):
        ModelPair("gpt2", None)


def test_refused_vocabulary_sizes():
    with pytest.raises(InputError, match=f"different vocabularies: 30 and {VOCABULARY} tokens"):
        ModelPair(build(), build(vocab_size=30))


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
    assert default_dtype(default_device()) == torch.bfloat16


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


def test_missing_models(tmp_path, monkeypatch):
    monkeypatch.setattr(pair_module, "EMBEDDED", tmp_path / "stories")
    with pytest.raises(InputError, match=r"embedded models are missing from .*stories; train them with `make train`"):
        load_pair()
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


def test_the_hub_cannot_be_reached(monkeypatch):
    def offline(*args, **kwargs):
        raise OSError(
            "We couldn't connect to 'https://huggingface.co' to load the files.\nCheck your internet connection."
        )

    monkeypatch.setattr(pair_module.AutoConfig, "from_pretrained", offline)
    with pytest.raises(
        InputError, match=r"^nobody/nothing could not be loaded: We couldn't connect to .* the files\.$"
    ):
        load_pair("nobody/nothing")


def test_encoder_decoder_is_refused_before_weights(tmp_path):
    T5Config(vocab_size=VOCABULARY).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="is an encoder-decoder model"):
        load_pair(tmp_path)


def test_models_stay_where_and_as_they_are():
    target, draft = build(), build()
    pair = ModelPair(target, draft)
    assert pair.target is target
    assert pair.draft is draft
    assert target.config._attn_implementation == "sdpa"
