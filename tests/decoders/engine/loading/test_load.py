"""Loading pairs, and one sentence for each that cannot be loaded."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from huggingface_hub.utils import _http
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GenerationConfig

from decoders import InputError, errors, generate, load_pair, parameters
from tests.hub import everywhere, standing_in
from tests.models import VOCABULARY, build, build_tokenizer, by_transformers


def save(folder, seed=0, words=(), **changes):
    build(dtype=torch.float32, seed=seed, **changes).save_pretrained(folder)
    build_tokenizer(words).save_pretrained(folder)
    return folder


def refused(said, *names, **options):
    """Not loaded, in one sentence that says so."""
    with pytest.raises(InputError, match=said) as error:
        load_pair(*names, **options)
    assert str(error.value).endswith(".")


def test_load_a_folder_with_two_models(tmp_path):
    save(tmp_path / "target"), save(tmp_path / "draft", seed=1)
    pair = load_pair(tmp_path, device="cpu")
    assert pair.target.dtype == pair.draft.dtype == torch.float32
    assert not torch.equal(pair.target.lm_head.weight, pair.draft.lm_head.weight)
    assert generate(pair, "abc", "speculative", max_new_tokens=6).text
    assert pair.end_tokens == {pair.tokenizer.eos_token_id}


def test_a_model_spread_by_accelerate(tmp_path):
    """Over the CPU alone, the only device here."""
    pytest.importorskip("accelerate")
    model = save(tmp_path / "model")
    pair = load_pair(model, device_map="auto")
    found = generate(pair, [5, 6], "greedy", max_new_tokens=9).tokens
    assert found == by_transformers(load_pair(model).target, [5, 6], 9, 0)


def test_load_names_and_dtypes(tmp_path):
    a, b = save(tmp_path / "a"), save(tmp_path / "b", seed=1)
    assert load_pair(a).draft is None
    pair = load_pair(str(a), str(b), dtype="bfloat16", device="cpu")
    assert pair.target.dtype == pair.draft.dtype == torch.bfloat16
    assert load_pair(a, dtype=torch.float64).target.dtype == torch.float64
    assert load_pair(a, a, device="cpu", draft_device="cpu").draft.device == torch.device("cpu")


def test_where_models_cannot_be(tmp_path):
    model = save(tmp_path / "model")
    for options, said in (
        ({"device": "cuda:77"}, "There is no device 'cuda:77' here"),
        ({"draft_device": "cuda:77"}, "There is no device 'cuda:77' here"),
        ({"device": "cpu", "device_map": "auto"}, "chooses the devices; leave device out"),
        ({"device_map": "balanced"}, "device_map must be 'auto' or None, not 'balanced'"),
    ):
        refused(said, model, model, **options)


def test_vocabularies_that_differ_by_tokens(tmp_path):
    """The configs only show that their sizes agree: the tokenizers are compared.

    The draft proposes the tokens that both know. Such a pair was refused."""
    pair = load_pair(save(tmp_path / "a", words=("one",)), save(tmp_path / "b", words=("two",)))
    assert pair.known == (VOCABULARY - 1) / VOCABULARY
    assert load_pair(tmp_path / "a", tmp_path / "a").known == 1
    c = save(tmp_path / "c", words=("one",), vocab_size=30)
    refused(f"different vocabularies: 30 and {VOCABULARY} tokens", tmp_path / "a", c)


def test_missing_models(tmp_path):
    refused(r"There is no folder /no/such/folder; name one", "/no/such/folder")
    refused(r"The name of a model is empty; name a folder", "")
    file = save(tmp_path / "model") / "model.safetensors"
    refused("is a file; name the folder that holds the whole model", file)
    (tmp_path / "empty").mkdir()
    refused(r"empty has no config\.json; name one that holds a model in the", tmp_path / "empty")


def truncate(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def pickle(folder):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")


def change(**settings):
    def write(folder):
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | settings))

    return write


BROKEN = {  # what was done to a good folder, and what is said about it
    "a broken config": (
        lambda f: (f / "config.json").write_text("{"),
        "has a broken config.json; download it again."),
    "weights cut short": (truncate, "has a broken or incomplete weights file; download it again."),
    "no weights": (
        lambda f: (f / "model.safetensors").unlink(),
        "holds no weights; name a folder or revision that holds the whole model."),
    "weights of other sizes": (
        change(hidden_size=64),
        "has weights of other sizes than its config.json says; download it again."),
    "a broken tokenizer": (
        lambda f: (f / "tokenizer.json").write_text("{"),
        "has a broken tokenizer file or index of weights; download it again."),
    "heads that do not fit": (
        change(num_attention_heads=5),
        "has invalid settings in its config.json; download it again."),
    "no tokenizer": (
        lambda f: [file.unlink() for file in f.glob("*token*")],
        "has no tokenizer that can be read here; name a folder that holds tokenizer.json."),
    "no language model": (
        change(model_type="vit"),
        "is not a causal language model; name one that generates text."),
    "an unknown type": (
        change(model_type="newer"),
        "is of a type that the installed transformers does not know; update transformers."),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_folders(tmp_path, case):
    """The first line of a foreign error is no sentence that names the fix."""
    broken, said = BROKEN[case]
    broken(save(tmp_path / "model"))
    with pytest.raises(InputError) as caught:
        load_pair(tmp_path / "model")
    assert str(caught.value) == f"{tmp_path}/model {said}"


def test_pickled_weights_are_for_those_who_ask(tmp_path):
    pickle(save(tmp_path / "model"))
    refused(
        "has no weights as safetensors, and others are read from pinned presets only; name a",
        tmp_path / "model",
        safetensors=True,
    )
    assert load_pair(tmp_path / "model").target


@pytest.mark.parametrize("name", [5, "a" * 5000, "\0", "\ud83d"], ids=lambda v: f"{v!r:.20}")
def test_what_cannot_name_a_model(tmp_path, name):
    """These were TypeErrors of pathlib and "File name too long"."""
    said = r"A model is named by text or a Path, not|cannot be looked up \(.*\); name a folder"
    for arguments in ((name,), (tmp_path, name), (name, name)):
        for call in (load_pair, parameters):
            with pytest.raises(InputError, match=said):
                call(*arguments)


@pytest.mark.parametrize(("name", "value", "said"), [
    ("passes", np.ones(2), r"passes must be 'program' or 'plain', not array\(\[1., 1.\]\)"),
    ("safetensors", "yes", "safetensors must be None, True or False, not 'yes'"),
    ("quantization", "int3", "quantization must be 'int8', 'int4' or None, not 'int3'"),
    ("dtype", "float8_e4m3fn", "dtype must be 'auto', 'float32', .* not 'float8_e4m3fn'"),
    ("device", 1.5, r"A device is named by text or a torch\.device, not 1\.5"),
    ("device", "meta", "The device 'meta' holds no weights; take 'cpu'"),
])  # fmt: skip
def test_options_that_cannot_be_are_refused_before_weights_are_read(tmp_path, name, value, said):
    """Arrays raised "the truth value is ambiguous"; float8 and "meta" failed in the first pass."""
    (save(tmp_path / "model") / "model.safetensors").unlink()
    refused(said, tmp_path / "model", **{name: value})


def test_parameters_are_counted_without_loading(tmp_path):
    model = save(tmp_path / "model")
    count = sum(p.numel() for p in load_pair(model).target.parameters())
    (model / "model.safetensors").unlink()
    assert parameters(model) == count
    assert parameters(model, model) == 2 * count


def without(folder, *parts):
    """Take the weights whose names hold one of `parts` out of a saved model."""
    file = folder / "model.safetensors"
    weights = {name: w for name, w in load_file(file).items() if not any(p in name for p in parts)}
    save_file(weights, file, metadata={"format": "pt"})
    return folder


def test_missing_weights(tmp_path):
    """Transformers draws random weights in place of missing ones.

    Two loads of a checkpoint without its last layer answered differently."""
    headless = without(save(tmp_path / "headless"), "lm_head")
    refused(r"headless has no weights for lm_head\.weight; load a folder or revision", headless)
    cut = without(save(tmp_path / "cut"), "layers.1.")
    refused(
        r"cut has no weights for model\.layers\.1\.\S+, model\.layers\.1\.\S+ and 7 more; ",
        save(tmp_path / "whole"),
        cut,
    )
    tied = save(tmp_path / "tied", tie_word_embeddings=True)
    assert load_pair(tied).target.lm_head.weight is not None


def test_without_network(tmp_path, monkeypatch):
    """The hub was asked five times for each file, half a minute and five lines each.

    Only then it was said that it cannot be reached, or a downloaded model loaded."""
    folder, waits = save(tmp_path / "model"), []
    monkeypatch.setattr(_http, "time", SimpleNamespace(sleep=waits.append))
    with standing_in() as hub:
        everywhere(monkeypatch, hub, tmp_path / "cache")
        hub.models["me/model"] = {file.name: file.read_bytes() for file in folder.iterdir()}
        there = load_pair("me/model")
    away = load_pair("me/model")
    assert torch.equal(there.target.lm_head.weight, away.target.lm_head.weight)
    refused(r"^nobody/nothing is not among the downloaded models", "nobody/nothing")
    assert not waits


def test_int8_weights(tmp_path):
    """A quarter of the bytes per token, and the tokens of the quantised model itself.

    The weights are packed, and not in oneDNN's blocks."""
    pytest.importorskip("torchao")
    model = save(tmp_path / "model", hidden_size=64, intermediate_size=128)
    plain, pair = load_pair(model), load_pair(model, model, quantization="int8")
    assert not pair.plain
    layers, ours = (
        p.packed["target"].weight_bytes - p.target.lm_head.weight.nbytes for p in (plain, pair)
    )
    assert 0.25 * layers < ours < 0.35 * layers
    result = generate(
        pair, [5, 6, 7], "speculative", max_new_tokens=20, temperature=0, ignore_eos=True
    )
    assert result.tokens == by_transformers(pair.target, [5, 6, 7], 20)


def test_quantisation_that_cannot_be(tmp_path):
    model = save(tmp_path / "model")
    pytest.importorskip("torchao")
    said = "int4 weights need a CUDA device, and this is cpu; take quantization='int8'"
    refused(said, model, quantization="int4", device="cpu")
    change(quantization_config={"quant_method": "gptq", "bits": 4})(model)
    refused(r"comes quantised already \(gptq\); leave quantization out", model, quantization="int8")


def test_a_quantised_checkpoint_names_the_packages_that_it_needs(tmp_path, monkeypatch):
    """The message names all of them, before the weights are read.

    Transformers names one, then the next; of torchao it said "No module named"."""
    model = save(tmp_path / "model")
    change(quantization_config={"quant_method": "gptq", "bits": 4})(model)
    (model / "model.safetensors").unlink()
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    said = r"\(gptq\), which needs optimum and gptqmodel; .* `pip install optimum gptqmodel`"
    refused(said, model)


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"quant_method": "modelopt"}, "modelopt"), ({"bits": 4}, "its config names none")],
)
def test_a_quantisation_that_transformers_does_not_know(tmp_path, settings, said):
    """It loaded the stored numbers as weights, without their scales: other tokens, and no error."""
    model = save(tmp_path / "model")
    change(quantization_config=settings)(model)
    refused(rf"in a way that the installed transformers does not know \({said}\); name the", model)


def adapter(folder, base, seed=0, size=VOCABULARY, kind="LoraConfig", **settings):
    peft = pytest.importorskip("peft")
    torch.manual_seed(seed)
    if kind == "LoraConfig":
        settings = {"target_modules": ["q_proj", "v_proj"], "init_lora_weights": False} | settings
    model = AutoModelForCausalLM.from_pretrained(base)
    if size != VOCABULARY:
        model.resize_token_embeddings(size)
    adapted = peft.get_peft_model(model, getattr(peft, kind)(**settings))
    with torch.no_grad():
        for weight in adapted.parameters():
            if weight.requires_grad:
                weight += 0.1 * torch.randn_like(weight)
    adapted.save_pretrained(folder)
    return adapted.eval()


def test_an_adapter_is_loaded_with_its_base(tmp_path):
    """Nothing was decoded: the check for replaced modules counted empty ones of `peft` as
    missing."""
    base = save(tmp_path / "base")
    adapted = adapter(tmp_path / "adapter", base)
    pair = load_pair(tmp_path / "adapter", base, device="cpu")
    assert not pair.plain
    ids = torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        torch.testing.assert_close(pair.target(ids).logits, adapted(ids).logits)
        assert (pair.target(ids).logits - pair.draft(ids).logits).abs().max() > 0.1
    result = generate(
        pair, [5, 6, 7], "speculative", max_new_tokens=20, temperature=0, ignore_eos=True
    )
    assert result.tokens == by_transformers(pair.target, [5, 6, 7], 20)
    assert parameters(tmp_path / "adapter") == parameters(base)


def test_trained_tokens_of_tied_embeddings(tmp_path):
    """The head shares their weights, and was said to have none."""
    base = save(tmp_path / "base", tie_word_embeddings=True)
    adapted = adapter(tmp_path / "adapter", base, trainable_token_indices=[5, 7])
    pair, ids = load_pair(tmp_path / "adapter"), torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        torch.testing.assert_close(pair.target(ids).logits, adapted(ids).logits)


MERGE = r"; merge it into its base with merge_and_unload\(\) of peft, save the result"


@pytest.mark.parametrize(("settings", "said"), [
    ({"use_dora": True}, "is a DoRA adapter, which transformers does not load" + MERGE),
    ({"size": 80}, "was trained on another base, or has tokens that its base lacks" + MERGE),
    ({"kind": "PromptTuningConfig", "task_type": "CAUSAL_LM", "num_virtual_tokens": 3},
     "is a soft prompt or another adapter that is no change of layers; name one that is"),
])  # fmt: skip
def test_adapters_that_transformers_does_not_load(tmp_path, settings, said):
    """They were to be downloaded again, or had transformers' words for it."""
    adapter(tmp_path / "adapter", save(tmp_path / "base"), **settings)
    refused(rf"/adapter {said}", tmp_path / "adapter")


TEMPLATE = "{% for message in messages %}({{ message.content }}){% endfor %}"


def test_an_adapter_with_its_own_tokenizer(tmp_path):
    """Its base's tokenizer, chat template and end of texts were taken."""
    base, folder = save(tmp_path / "base"), tmp_path / "adapter"
    adapter(folder, base)
    own = build_tokenizer()
    own.eos_token, own.chat_template = "!", TEMPLATE
    own.save_pretrained(folder)
    pair = load_pair(folder, base)
    assert pair.end_tokens == {own.convert_tokens_to_ids("!")}
    assert pair.tokenizer.eos_token == "!"
    assert pair.tokenizer.apply_chat_template([{"content": "a"}], tokenize=False) == "(a)"
    assert load_pair(base).end_tokens == {build_tokenizer().eos_token_id}
    GenerationConfig(eos_token_id=[3, 4]).save_pretrained(folder)
    assert load_pair(folder).end_tokens == {3, 4}


def test_two_adapters_on_one_base(tmp_path):
    """The base was in memory twice."""
    base, ids = save(tmp_path / "base"), torch.tensor([[5, 6, 7]])
    adapted = [adapter(tmp_path / name, base, seed) for name, seed in (("a", 0), ("b", 1))]
    pair = load_pair(tmp_path / "a", tmp_path / "b", device="cpu")
    with torch.inference_mode():
        for ours, theirs in zip((pair.target, pair.draft), adapted, strict=True):
            torch.testing.assert_close(ours(ids).logits, theirs(ids).logits)
    first, second = (
        {id(w) for name, w in model.named_parameters() if "lora" not in name}
        for model in (pair.target, pair.draft)
    )
    assert first == second
    result = generate(
        pair, [5, 6, 7], "speculative", max_new_tokens=9, temperature=0, ignore_eos=True
    )
    assert result.tokens == by_transformers(pair.target, [5, 6, 7], 9)


def test_an_adapter_without_weights(tmp_path):
    """Its base is complete; transformers reports the weights that the adapter lacks.

    It reports them in place of those that the base lacks."""
    adapter(tmp_path / "adapter", without(save(tmp_path / "base"), "lm_head"))
    refused(r"/base has no weights for lm_head\.weight; load a folder", tmp_path / "adapter")
    save(tmp_path / "base")
    (tmp_path / "adapter" / "adapter_model.safetensors").unlink()
    refused("/adapter lacks one of its weights files; download it again", tmp_path / "adapter")


def test_adapters_that_cannot_be(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    refused(r"has a broken adapter_config\.json; save the adapter again", tmp_path)
