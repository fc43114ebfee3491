"""With llama.cpp's library: small models in GGUF files, beside llama.cpp's own decoding."""

import ctypes
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from tokenizers.decoders import ByteLevel
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import decoders
from decoders import InputError, catalog, generate, load_pair
from decoders.engine.gguf import context
from decoders.engine.loading import gguf as loading
from decoders.engine.loading.load import EMBEDDED
from decoders.tree import TokenTree
from tests.models import build, build_both
from tools.engines.convert import write
from workbench.models.environment import environment
from workbench.models.keeper import load
from workbench.models.presets import PairChoice
from workbench.runs.verdicts import p_value

llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
PROMPT = "Once upon a time"
COLD = {"max_new_tokens": 24, "temperature": 0}
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}{% endfor %}go:"


def saved(folder: Path, model, tokenizer) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write(folder, folder.with_suffix(".gguf"))
    return folder.with_suffix(".gguf")


def other_tokenizer() -> PreTrainedTokenizerFast:
    """Another byte-level BPE, with few merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=280, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(
        ["once upon a time there was a little girl who was happy"], trainer
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """target, draft, and another whose tokenizer is another: folders and GGUF files."""
    folder, tokenizer = (
        tmp_path_factory.mktemp("gguf"),
        AutoTokenizer.from_pretrained(EMBEDDED / "target"),
    )
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    both = build_both(torch.float32, eos=0, noise=0.01, vocab_size=len(tokenizer), **ends)
    for role, model in zip(("target", "draft"), both, strict=True):
        saved(folder / role, model, tokenizer)
    other = other_tokenizer()
    saved(folder / "other", build(dtype=torch.float32, vocab_size=len(other), **ends), other)
    return folder


@pytest.fixture(scope="module")
def pair(folder):
    return load_pair(folder / "target.gguf", folder / "draft.gguf")


def read(pair, ids: list[int]) -> np.ndarray:
    """The logits after a text, by llama.cpp alone: one sequence, its own defaults."""
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = 512
    settings.n_threads = settings.n_threads_batch = 1
    context = llama_cpp.llama_init_from_model(pair.target.weights.pointer, settings)
    tokens = (ctypes.c_int32 * len(ids))(*ids)
    batch = llama_cpp.llama_batch_get_one(tokens, len(ids))
    assert llama_cpp.llama_decode(context, batch) == 0
    found = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (pair.vocabulary,)).copy()
    llama_cpp.llama_free(context)
    return found


def greedily(pair, ids: list[int], count: int) -> list[int]:
    """llama.cpp's own greedy decoding, token by token with its sampler."""
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = 512
    settings.n_threads = settings.n_threads_batch = 1
    context = llama_cpp.llama_init_from_model(pair.target.weights.pointer, settings)
    sampler, found, fed = llama_cpp.llama_sampler_init_greedy(), [], ids
    while len(found) < count and 0 not in found:
        tokens = (ctypes.c_int32 * len(fed))(*fed)
        batch = llama_cpp.llama_batch_get_one(tokens, len(fed))
        assert llama_cpp.llama_decode(context, batch) == 0
        fed = [llama_cpp.llama_sampler_sample(sampler, context, -1)]
        found += fed
    llama_cpp.llama_sampler_free(sampler)
    llama_cpp.llama_free(context)
    return found


def test_greedy_texts_are_llama_cpps_own(pair):
    for prompt in (PROMPT, "The dog", "One day"):
        own = greedily(pair, pair.tokenizer(prompt).input_ids, 24)
        assert generate(pair, prompt, "greedy", **COLD).tokens == own


@pytest.mark.parametrize(
    "name", [n for n, method in catalog.items() if method().lossless and not method.uses_head]
)
def test_exact_decoders_have_its_greedy_text(pair, name):
    own = greedily(pair, pair.tokenizer(PROMPT).input_ids, 24)
    assert generate(pair, PROMPT, name, **COLD).tokens == own


@pytest.mark.parametrize(
    "method",
    [
        catalog["multinomial"](),
        catalog["speculative"](draft_length=3),
        catalog["specinfer"](),
        catalog["traversal"](),
        catalog["mtad"](threshold=1.0, beams=2),
    ],
    ids=lambda method: method.name,
)
def test_two_tokens_follow_the_files_own_law(pair, method):
    """With a threshold of 1, MTAD claims it, too."""
    follows_the_files_law(pair, method)


def follows_the_files_law(pair, method, **sampling) -> None:
    """Chi-square of draws against llama.cpp's logits."""
    ids, count, k = pair.tokenizer(PROMPT).input_ids, 1200, 4
    law = {
        (a, b): p * q
        for a, p in few(read(pair, ids), k).items()
        for b, q in few(read(pair, [*ids, a]), k).items()
    }
    sampling |= {"max_new_tokens": 2, "top_k": k, "max_batch": 40}
    seen = Counter(tuple(r.tokens) for r in generate(pair, [ids] * count, method, **sampling))
    assert set(seen) <= set(law)
    chance = p_value([seen[text] for text in law], list(law.values()))
    assert chance is not None
    assert chance > 1e-3


def few(logits: np.ndarray, k: int) -> dict[int, float]:
    """The k likeliest tokens with their chances."""
    ids = np.argsort(-logits)[:k]
    p = np.exp(logits[ids].astype(float) - logits[ids].max())
    return dict(zip(ids.tolist(), (p / p.sum()).tolist(), strict=True))


def test_draws_of_another_law_are_noticed(pair):
    with pytest.raises(AssertionError):
        follows_the_files_law(pair, catalog["speculative"](), temperature=0.5)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_quantised_files_have_their_own_greedy_text(pair, folder, kind):
    settings = llama_cpp.llama_model_quantize_default_params()
    settings.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
    source, file = str(folder / "target.gguf"), folder / f"{kind}.gguf"
    assert llama_cpp.llama_model_quantize(source.encode(), str(file).encode(), settings) == 0
    small = load_pair(file, folder / "draft.gguf")
    assert small.target.weights.stored == kind
    assert small.target.weight_bytes < pair.target.weight_bytes
    own = greedily(small, small.tokenizer(PROMPT).input_ids, 24)
    for decoder in ("greedy", "speculative", "specinfer"):
        assert generate(small, PROMPT, decoder, **COLD).tokens == own


def test_a_pass_with_more_tokens_than_one_call_takes(pair, folder, monkeypatch):
    monkeypatch.setattr(context, "TOKENS", 256)
    parts, long = load_pair(folder / "target.gguf", folder / "draft.gguf"), list(range(1, 401))
    own = greedily(pair, long, 24)
    for decoder in ("greedy", "specinfer"):
        assert generate(parts, long, decoder, **COLD).tokens == own


def test_a_draft_with_another_tokenizer(pair, folder):
    both = load_pair(folder / "target.gguf", folder / "other.gguf")
    assert not both.one_tokenizer
    assert 0 < both.known < 1
    result = generate(both, PROMPT, "speculative", **COLD)
    assert result.metrics.drafted > 0
    assert result.tokens == generate(pair, PROMPT, "greedy", **COLD).tokens


@pytest.mark.parametrize("name", ["target", "other"])
def test_the_tokenizer_is_that_of_transformers(folder, name):
    """llama.cpp's own detokenizer took spaces away: “a , b . x 's” came out as “a, b. x's”."""
    theirs, ours = (
        AutoTokenizer.from_pretrained(folder / name),
        load_pair(folder / f"{name}.gguf").tokenizer,
    )
    end = theirs.eos_token
    spaced = "a , b . x 's 've"
    for text in ("Once upon a time", " Élan\n\n 你好", f"a{end}b", "it's 1234.", spaced, ""):
        ids = list(theirs(text).input_ids)
        assert ours(text).input_ids == ids
        for tokens in (ids, ids[:-1], ids[1:2]):
            for skip in (True, False):
                options = {"skip_special_tokens": skip, "clean_up_tokenization_spaces": False}
                assert ours.decode(tokens, **options) == theirs.decode(tokens, **options)
    assert ours.get_vocab() == theirs.get_vocab()
    assert ours.batch_decode([[5, 6], [7]]) == theirs.batch_decode([[5, 6], [7]])
    assert ours.all_special_ids == theirs.all_special_ids
    assert (ours.eos_token_id, ours.eos_token) == (theirs.eos_token_id, theirs.eos_token)
    ours.chat_template = TEMPLATE
    assert (
        ours.apply_chat_template([{"role": "user", "content": "hi"}], add_generation_prompt=True)
        == f"[user] hi{end}go:"
    )


def test_stop_strings_and_streams(pair):
    whole = generate(pair, PROMPT, "greedy", **COLD)
    word = whole.text[len(whole.text) // 2 :][:4]
    assert word not in generate(pair, PROMPT, "speculative", stop=word, **COLD).text


def test_places_are_read(pair):
    text = generate(pair, PROMPT, "greedy", **COLD).tokens
    places = decoders.read(pair, PROMPT, text)
    assert places.logits.argmax(-1).tolist()[: len(text)] == text
    assert places.q is not None
    draft = text[:3]
    kept = decoders.judge(places.p[:4], places.q[:3], draft, ["tokenwise"])
    assert kept


def test_what_is_said_of_it(pair):
    facts = environment(pair)
    target = facts["target"]
    assert (target["type"], facts["dtype"], facts["device"]) == ("llama", "float16", "cpu")
    assert target["bytes"] == pair.target.weight_bytes
    assert target["parameters"] == pair.target.weights.parameters > 1000
    assert "llama.cpp" in target["engine"]
    assert "F16" in target["engine"]


def test_a_limit_on_the_cache(pair):
    need = decoders.cache_need(pair, "speculative", 5, 8)
    one = generate(pair, PROMPT, "speculative", max_new_tokens=8, max_cache_bytes=4 * need)
    assert len(one.tokens) == 8


def test_the_keeper_loads_files(folder):
    choice = PairChoice(str(folder / "target.gguf"), str(folder / "draft.gguf"))
    assert load(choice).draft.weights.source == choice.draft
    with pytest.raises(InputError, match="leave dtype out"):
        load(PairChoice(choice.target, dtype="float16"))


def test_trees_that_come_out_wrong_are_refused(folder, monkeypatch):
    """As they would where a sequence saw cells of another."""
    monkeypatch.setattr(TokenTree, "text", lambda self, node: [1, 2, node % 7])
    with pytest.raises(InputError, match="gives other logits in a tree than in a text"):
        load_pair(folder / "target.gguf")


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("llama_model_is_recurrent", "has recurrent layers"),
        ("llama_model_is_hybrid", "has recurrent layers"),
        ("llama_model_n_swa", "has layers with a sliding window"),
        ("llama_model_has_encoder", "is no causal language model"),
        ("llama_model_is_diffusion", "is no causal language model"),
    ],
)
def test_models_whose_caches_carry_no_trees_are_refused(folder, monkeypatch, answer, sentence):
    monkeypatch.setattr(llama_cpp, answer, lambda model: True)
    with pytest.raises(InputError, match=sentence):
        load_pair(folder / "target.gguf")


def test_positions_of_several_numbers_are_refused(folder, monkeypatch):
    monkeypatch.setattr(llama_cpp, "llama_model_rope_type", lambda model: 8)
    with pytest.raises(InputError, match="has positions of several numbers"):
        load_pair(folder / "target.gguf")


def test_broken_files_are_refused(folder, tmp_path):
    whole = (folder / "target.gguf").read_bytes()
    for size, why in ((4, "failed to read header"), (len(whole) - 100, "within the file bounds")):
        (tmp_path / "cut.gguf").write_bytes(whole[:size])
        with pytest.raises(InputError, match=rf"llama.cpp cannot load .*cut.gguf \(.*{why}"):
            load_pair(tmp_path / "cut.gguf")


def test_what_fails_in_a_pass_is_said(folder, monkeypatch):
    monkeypatch.setattr(llama_cpp, "llama_decode", lambda *_: -2)
    with pytest.raises(InputError, match=r"cannot read a tree in llama.cpp \(llama.cpp failed"):
        load_pair(folder / "target.gguf")
    monkeypatch.setattr(loading, "reads_trees", lambda model: None)
    with pytest.raises(decoders.ModelError, match="its code is -2"):
        generate(load_pair(folder / "target.gguf"), PROMPT, "greedy", max_new_tokens=2)
