"""One pair in memory; what is loaded, and what strangers may load."""

import weakref

import httpx
import pytest
import torch
from huggingface_hub.errors import GatedRepoError
from transformers import LlamaConfig

from decoders import InputError, parameters
from decoders.engine.loading import load as loading
from tests.hub import TOKEN, everywhere, standing_in
from tests.models import save_small_pair
from workbench.models import keeper
from workbench.models.keeper import PairError, PairKeeper, load
from workbench.models.presets import CACHE_BYTES, PAIRS, PairChoice

A, B = PairChoice("a"), PairChoice("b")


class Loads(list):
    """The pairs loaded, in order; a pair is its choice in capitals."""

    def __call__(self, choice, custom_allowed, public):
        self.append((choice, custom_allowed))
        if choice.target == "broken":
            raise InputError("broken could not be loaded")
        return choice.target.upper()


@pytest.fixture
def loads():
    return Loads()


def test_a_pair_is_loaded_once_and_another_takes_its_place(loads):
    pairs = PairKeeper(custom_allowed=False, loader=loads)
    assert [pairs.get(c) for c in (A, A, B, B, A)] == ["A", "A", "B", "B", "A"]
    assert loads == [(A, False), (B, False), (A, False)]


def test_what_another_pair_held_is_let_go_at_once():
    """Rings of references keep a pair until Python looks for them, which may be long after."""

    class Ring:
        def __init__(self):
            self.own = self

    pairs = PairKeeper(loader=lambda *_: Ring())
    gone = weakref.ref(pairs.get(A))
    pairs.get(B)
    assert gone() is None


def test_a_pair_that_cannot_be_loaded_leaves_the_one_in_memory(loads):
    pairs = PairKeeper(loader=loads)
    pairs.get(A)
    with pytest.raises(InputError, match="broken"):
        pairs.get(PairChoice("broken"))
    assert pairs.peek(A) == "A"
    pairs.get(A)
    assert len(loads) == 2


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


class Calls(list):
    """Calls of load_pair, which then loads nothing, or fails so."""

    failure: Exception | None = None

    def __call__(self, *names, **options):
        self.append((names, options))
        if self.failure:
            raise self.failure


@pytest.fixture
def loaded(monkeypatch):
    calls = Calls()
    monkeypatch.setattr(keeper, "load_pair", calls)
    return calls


def test_a_folder_of_ones_own_is_loaded(folder, pair):
    found = load(PairChoice(str(folder)))
    assert torch.equal(found.target.lm_head.weight, pair.target.lm_head.weight)
    assert found.draft is not None
    assert load(PairChoice(str(folder / "target"), dtype="bfloat16")).target.dtype == torch.bfloat16


def test_own_models_are_read_from_safetensors_only(folder):
    with pytest.raises(InputError, match="has no weights as safetensors"):
        load(PairChoice(str(folder / "pickled")))


def test_presets_may_have_pickled_weights_at_their_pinned_revision(loaded, free, monkeypatch):
    free(None)
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads")
    tiny = LlamaConfig(num_hidden_layers=1, **dict.fromkeys(names, 8))
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


def test_what_does_not_fit_is_refused_before_anything_is_loaded(loaded, folder, free):
    free(1000)
    with pytest.raises(InputError, match=r"not fit: its weights take .* in float32 and cpu has"):
        load(PairChoice(str(folder), device="cpu"))
    assert loaded == []


def test_quantised_weights_need_less_and_reach_the_loader(loaded, folder, free):
    free(CACHE_BYTES + 4 * parameters(str(folder)))
    with pytest.raises(InputError, match="does not fit"):
        load(PairChoice(str(folder), None, "cpu", "float32"))
    load(PairChoice(str(folder), None, "cpu", "float32", "int8"))
    assert loaded[0][1]["quantization"] == "int8"


def test_running_out_of_memory_while_loading_is_no_traceback(folder, loaded):
    loaded.failure = torch.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(InputError, match="does not fit in the memory of cpu"):
        load(PairChoice(str(folder), device="cpu"))


def test_a_gated_model_says_that_a_token_is_needed_and_where_it_goes(loaded, folder, free):
    answer = httpx.Response(403, request=httpx.Request("GET", "https://huggingface.co"))
    gated = OSError("You are trying to access a gated repo.")
    gated.__cause__ = GatedRepoError("403", response=answer)
    loaded.failure = InputError("meta-llama/Llama-2-13b-hf could not be loaded")
    loaded.failure.__cause__ = gated
    free(None)
    says = r"is gated: accept its licence .* `hf auth login` or in the variable HF_TOKEN"
    with pytest.raises(InputError, match=says):
        load(PairChoice(str(folder), device="cpu"))


@pytest.mark.parametrize(("choice", "message"), [
    ({"target": "/no/such/folder"}, "There is no folder /no/such/folder; name one"),
    ({"device": "quantum"}, "There is no device 'quantum' here"),
    ({"dtype": "int"}, "dtype must be"),
])  # fmt: skip
def test_what_is_not_there_is_named(folder, choice, message):
    with pytest.raises(InputError, match=message):
        load(PairChoice(**{"target": str(folder), **choice}))


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """With a model that everybody may read, and one that only the owner of the machine may."""
    save_small_pair(tmp_path / "pair")
    with standing_in() as hub:
        everywhere(monkeypatch, hub, tmp_path / "cache")
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        for name, role in (("maker/gated", "target"), ("maker/open", "draft")):
            files = sorted((tmp_path / "pair" / role).iterdir())
            hub.models[name] = {file.name: file.read_bytes() for file in files}
        hub.gated["maker/gated"] = {hub.accounts[TOKEN]}
        yield hub


def test_strangers_load_what_everybody_may_read(hub):
    """The owner's token read gated models for every visitor who named one."""
    strangers = PairKeeper(public=True)
    assert strangers.get(PairChoice("maker/open", device="cpu"))
    for target, draft in (("maker/gated", None), ("maker/open", "maker/gated")):
        with pytest.raises(PairError, match="is gated, and this Space loads what everybody may"):
            strangers.get(PairChoice(target, draft, device="cpu"))
    assert PairKeeper().get(PairChoice("maker/gated", device="cpu"))  # its owner may


def test_strangers_read_no_file_of_the_machine(hub, tmp_path, monkeypatch):
    strangers, folder = PairKeeper(public=True), tmp_path / "pair"
    monkeypatch.chdir(folder)
    (folder / "weights.gguf").write_bytes(b"GGUF")
    for name, says in (
        (str(folder / "target"), "is no model of the hub; take a name"),
        ("target", "is a folder; name a model of the hub here"),
        ("weights.gguf", "is a file; name a model of the hub here"),
    ):
        with pytest.raises(PairError, match=says):
            strangers.get(PairChoice(name, device="cpu"))


@pytest.mark.parametrize("name", ["foo bar", "a/b/c", "../x", "a" * 5000, "a\0b", "a/b?c=d"])
def test_a_name_that_is_none_is_one_sentence(name):
    with pytest.raises(PairError, match=r"is no model of the hub; take a name .*\.$"):
        PairKeeper(public=True).get(PairChoice(name, device="cpu"))
