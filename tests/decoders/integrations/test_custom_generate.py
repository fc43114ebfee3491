"""Decoders inside of transformers' `generate`: the same tokens, the same law, or one sentence."""

import copy
import importlib.metadata
import pickle
import re
import shutil
import sys
from pathlib import Path
from threading import Thread

import pytest
import torch
from transformers import (
    DynamicCache,
    LogitsProcessorList,
    MaxLengthCriteria,
    RepetitionPenaltyLogitsProcessor,
    StoppingCriteria,
    StoppingCriteriaList,
    TextIteratorStreamer,
    TextStreamer,
    dynamic_module_utils,
)
from transformers.generation.candidate_generator import CandidateGenerator

import decoders
from tests.models import FAMILIES, VOCABULARY, build, build_tokenizer
from tests.pairwise import EVERYWHERE, part

# The catalog is decoded in tests/golden; here are one of each way of decoding.
SOME = "multinomial", "speculative", "mtad", "dsbd", "beam_search", "lookup"
TEXTS = [[5, 9, 3, 7, 1, 8], [4], [11, 2, 11, 2, 11, 2, 11, 2, 11], [6, 6, 30], [17, 21]]
PAD, END = 0, 13
GREEDY = {"do_sample": False, "pad_token_id": PAD}


def pair_of(family: str, noise: float = 0.03, **options) -> tuple:
    """A tiny model and, as its draft, the same with noise on its weights."""
    target, draft = (build(family, pad_token_id=PAD, **options) for _ in range(2))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in draft.parameters():
            weight += noise * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return target, draft


@pytest.fixture(scope="module")
def llama():
    return pair_of("llama")


def inputs(texts: list[list[int]]) -> dict[str, torch.Tensor]:
    """Texts padded on the left."""
    longest = max(map(len, texts))
    rows = [[PAD] * (longest - len(t)) + t for t in texts]
    mask = [[0] * (longest - len(t)) + [1] * len(t) for t in texts]
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(mask)}


def new(output: torch.Tensor, given: dict[str, torch.Tensor], end: int = END) -> list[list[int]]:
    """The new tokens of each row, up to the end token."""
    rows = output[:, given["input_ids"].shape[1] :].tolist()
    return [row[: row.index(end) + 1] if end in row else row for row in rows]


@pytest.mark.parametrize("family", FAMILIES if EVERYWHERE else ("llama", "gpt2"))
def test_the_tokens_of_generate_alone_and_in_a_batch_of_uneven_lengths(family):
    """transformers refuses batched assisted generation (its issue 32165)."""
    model, draft = pair_of(family)
    options = {"max_new_tokens": 12, **GREEDY}
    end = model.generate(**inputs(TEXTS[:1]), **options)[0, len(TEXTS[0]) + 4].item()
    options["eos_token_id"] = end

    def each(**more) -> list[list[int]]:
        return [
            new(model.generate(**inputs([t]), **options, **more), inputs([t]), end)[0]
            for t in TEXTS
        ]

    def together(method) -> list[list[int]]:
        found = model.generate(**inputs(TEXTS), **options, custom_generate=method)
        return new(found, inputs(TEXTS), end)

    alone = each()
    assert len(alone[0]) <= 5
    for name, drafts in (("greedy", {}), ("speculative", {"draft": draft}), ("lookup", {})):
        assert together(decoders.hf(name, **drafts)) == alone
    beams = each(num_beams=3)
    assert together(decoders.hf("beam_search", beams=3)) == beams
    for length in ("auto", 2):
        method = decoders.hf("speculative_beam_search", draft=draft, beams=3, draft_length=length)
        assert together(method) == beams


@pytest.mark.parametrize("name", part(SOME))
def test_a_batch_is_decoded_as_each_row_is_and_as_decoders_generate_does(name, llama):
    model, draft = llama
    method = decoders.hf(name, draft=draft, seed=[5, 6, 7])
    sampling = {"max_new_tokens": 8, "temperature": 0.9, "top_k": 20, "top_p": 0.95}
    options = {**sampling, "do_sample": True, "pad_token_id": PAD}
    batch, pair = inputs(TEXTS[:3]), decoders.ModelPair(model, draft)
    together = new(model.generate(**batch, **options, custom_generate=method), batch)
    for i, text in enumerate(TEXTS[:3]):
        single = decoders.hf(name, draft=draft, seed=5 + i)
        found = model.generate(**inputs([text]), **options, custom_generate=single)
        assert new(found, inputs([text])) == [together[i]]
        whole = decoders.generate(pair, text, name, seed=5 + i, **sampling).tokens
        assert found[0, len(text) :].tolist() == whole


def test_the_seed_is_torchs_unless_one_is_given(llama):
    model, draft = llama
    given, options = inputs(TEXTS[:2]), {"max_new_tokens": 10, "do_sample": True}
    method = decoders.hf("speculative", draft=draft)

    def tokens(seed: int, custom=method) -> list[list[int]]:
        torch.manual_seed(seed)
        return new(model.generate(**given, **options, custom_generate=custom), given)

    assert tokens(3) == tokens(3)
    assert tokens(3) != tokens(4)
    fixed = decoders.hf("speculative", draft=draft, seed=7)
    assert tokens(3, fixed) == tokens(4, fixed)


class AfterTwoAlike(StoppingCriteria):
    """Ends a row whose last token stands twice in it; sees whole rows, as in `generate`."""

    def __init__(self):
        self.lengths = set()

    def __call__(self, input_ids, scores, **options):
        self.lengths.add(input_ids.shape[1])
        return torch.tensor([(row == row[-1]).sum() > 1 for row in input_ids])


def test_stopping_criteria_are_asked_after_every_token(llama):
    model, draft = llama
    given, options = inputs(TEXTS), {"max_new_tokens": 20, "eos_token_id": END, **GREEDY}
    expected, ours = AfterTwoAlike(), AfterTwoAlike()
    wanted = model.generate(**given, **options, stopping_criteria=StoppingCriteriaList([expected]))
    options["custom_generate"] = decoders.hf("speculative", draft=draft)
    found = model.generate(**given, **options, stopping_criteria=StoppingCriteriaList([ours]))
    assert found.tolist() == wanted.tolist()
    assert ours.lengths == expected.lengths


@pytest.mark.parametrize("limit", [3, 20])
def test_a_callers_limit_of_length_counts_as_it_does_for_generate(limit, llama):
    """The config's limit was kept, whatever the caller's criterion said."""
    model, draft = llama
    given = inputs(TEXTS[:1])
    length = given["input_ids"].shape[1] + limit
    criteria = StoppingCriteriaList([MaxLengthCriteria(length)])
    options = {"max_new_tokens": 8, "stopping_criteria": criteria, **GREEDY}
    wanted = model.generate(**given, **options)
    assert wanted.shape[1] <= length
    for method in (decoders.hf("greedy"), decoders.hf("speculative", draft=draft)):
        assert torch.equal(model.generate(**given, **options, custom_generate=method), wanted)


def test_a_penalty_for_repetition_looks_at_the_whole_prompt_in_a_padded_batch(llama):
    """`generate` tells it how much padding each row has; once as many tokens of a prompt without
    padding were ignored, and batches raised transformers' own ValueError."""
    model, draft = llama
    options = {"max_new_tokens": 20, "repetition_penalty": 1.8, **GREEDY}
    wanted = [new(model.generate(**inputs([t]), **options), inputs([t]))[0] for t in TEXTS]
    method = decoders.hf("speculative", draft=draft)
    batch = model.generate(**inputs(TEXTS), **options, custom_generate=method)
    assert new(batch, inputs(TEXTS)) == wanted
    padded = {name: value[1:2] for name, value in inputs(TEXTS).items()}
    assert new(model.generate(**padded, **options, custom_generate=method), padded) == wanted[1:2]
    own = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(1.8, prompt_ignore_length=3)])
    with pytest.raises(decoders.InputError, match="prompt_ignore_length counts padding"):
        model.generate(**padded, max_new_tokens=3, logits_processor=own, custom_generate=method)


class Heard(TextStreamer):
    """Keeps what it is given."""

    def __init__(self):
        self.tokens, self.ended = [], 0

    def put(self, value):
        self.tokens += value.flatten().tolist()

    def end(self):
        self.ended += 1


@pytest.mark.parametrize("name", SOME)
def test_a_streamer_hears_every_token_once(name, llama):
    """It heard the prompt, then nothing, not even the end."""
    model, draft = llama
    given, options = inputs([TEXTS[0]]), {"max_new_tokens": 9, "do_sample": True}
    heard, method = Heard(), decoders.hf(name, draft=draft, seed=3)
    output = model.generate(**given, **options, streamer=heard, custom_generate=method)
    assert heard.tokens == output[0].tolist()
    assert heard.ended == 1


def test_the_text_of_a_streamer_is_that_of_the_output(llama, capsys):
    """A reader in another thread waited for ever, as transformers' own example has it."""
    model, draft = llama
    tokenizer, given = build_tokenizer(), inputs([TEXTS[0]])
    streamer = TextIteratorStreamer(tokenizer, timeout=60)
    method = decoders.hf("mtad", draft=draft, seed=3)
    call = {**given, "max_new_tokens": 9, "custom_generate": method}
    thread = Thread(target=model.generate, kwargs={**call, "streamer": streamer})
    thread.start()
    read = "".join(streamer)
    thread.join(60)
    assert read == tokenizer.decode(model.generate(**call)[0])
    model.generate(**call, streamer=TextStreamer(tokenizer))
    assert capsys.readouterr().out == read + "\n"


def test_a_streamer_is_told_the_end_when_the_call_fails(llama):
    model, given = llama[0], inputs([TEXTS[0]])
    streamer = TextIteratorStreamer(build_tokenizer(), timeout=60)
    method = decoders.hf("greedy")
    with pytest.raises(decoders.InputError, match="penalty_alpha"):
        model.generate(**given, penalty_alpha=0.6, streamer=streamer, custom_generate=method)
    assert build_tokenizer().decode(TEXTS[0]) == "".join(streamer)


def test_a_draft_of_another_family_has_its_own_tokenizer(llama):
    """The message was "give the draft's own tokenizer", which `hf` could not take."""
    model, other = llama[0], build("gpt2", vocab_size=VOCABULARY + 5, seed=5)
    given = inputs(TEXTS[:3])
    options = {"max_new_tokens": 12, "return_dict_in_generate": True, **GREEDY}
    own, others = build_tokenizer(("th", "he")), build_tokenizer(("qu", "t", "el"))
    method = decoders.hf("speculative", draft=other, tokenizer=own, draft_tokenizer=others)
    output = model.generate(**given, **options, custom_generate=method)
    assert output.sequences.tolist() == model.generate(**given, **options).sequences.tolist()
    assert sum(m.drafted for m in output.metrics) > 0
    with pytest.raises(decoders.InputError, match="the tokenizers of both, as tokenizer and draft"):
        model.generate(**given, custom_generate=decoders.hf("speculative", draft=other))


HUB = Path(__file__).parents[3] / "assets" / "custom_generate"


@pytest.fixture
def from_folder(tmp_path, monkeypatch):
    """The arguments for `generate` to take the method from a folder, as from a repository of the
    hub.

    It makes transformers believe that our package is installed."""
    installed, real = {"decoding-workbench": decoders.__version__}, importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: installed.get(name) or real(name)
    )
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])  # transformers adds that folder
    folder = shutil.copytree(HUB, tmp_path / "hub")
    return {"custom_generate": str(folder), "trust_remote_code": True}


def test_the_code_on_the_folders_card_runs(from_folder, small):
    pair, folder = decoders.load_pair(), from_folder
    card = (HUB / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall("```python\n(.*?)```", card, re.S)
    known = {"model": pair.target, "draft": pair.draft, "tokenizer": pair.tokenizer}
    exec(code.replace("<this repository>", folder["custom_generate"]), known)
    assert len(known["output"]) == 2


def test_the_folder_for_the_hub_is_hf_by_another_name(from_folder, llama):
    (model, draft), folder = llama, from_folder
    tokenizer, given = build_tokenizer(), inputs([TEXTS[0]])
    options = {"max_new_tokens": 20, "do_sample": True, "return_dict_in_generate": True}
    plain = decoders.hf("speculative", draft=draft, seed=3, draft_length=2)
    whole = new(model.generate(**given, **options, custom_generate=plain).sequences, given)[0]
    word, heard = tokenizer.decode(whole[5:7]), Heard()
    found = model.generate(
        **given, **options, **folder, decoder="speculative", assistant_model=draft,
        settings={"draft_length": 2}, seed=3, tokenizer=tokenizer, stop_strings=word,
        streamer=heard,
    )  # fmt: skip
    tokens = new(found.sequences, given)[0]
    assert tokens == whole[: len(tokens)]
    assert word in tokenizer.decode(tokens)
    assert len(tokens) < len(whole)
    assert heard.tokens == found.sequences[0].tolist()
    assert heard.ended
    assert found.metrics[0].drafted > 0


def test_a_model_that_has_decoded_is_copied_and_pickled():
    model, given = pair_of("llama")[0], inputs([TEXTS[0]])
    call = {**given, "max_new_tokens": 3, "custom_generate": decoders.hf("greedy")}
    wanted = model.generate(**call).tolist()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.generate(**call).tolist() == wanted


@pytest.mark.parametrize(("options", "words"), [
    ({"assistant_model": build("llama")},
     r'leave assistant_model out and take decoders.hf\("speculative", draft=model'),
    ({"attention_mask": torch.tensor([[1, 1, 1, 1, 1, 0]])}, "pad on the left"),
    ({"position_ids": torch.arange(3, 9)[None]}, "leave position_ids out"),
], ids=lambda value: ", ".join(value) if isinstance(value, dict) else "")  # fmt: skip
def test_what_cannot_be_honoured_is_refused_in_a_sentence(options, words, llama):
    given = {**inputs([TEXTS[0]]), "max_new_tokens": 4, "pad_token_id": PAD, **options}
    with pytest.raises(decoders.InputError, match=words):
        llama[0].generate(**given, custom_generate=decoders.hf("greedy"))


def test_a_cache_that_is_not_empty_is_refused(llama):
    cache = DynamicCache(config=llama[0].config)
    llama[0](torch.tensor([TEXTS[0][:3]]), past_key_values=cache)
    given = {**inputs([TEXTS[0]]), "past_key_values": cache}
    with pytest.raises(decoders.InputError, match="without cache or past_key_values"):
        llama[0].generate(**given, custom_generate=decoders.hf("greedy"))


@pytest.mark.parametrize(("decoder", "options", "words"), [
    ("mtad", {"draft": build("llama"), "treshold": 1}, "did you mean 'threshold'"),
    ("mtad", {}, r'decoders.hf\("mtad", draft=model\)'),
    ("mtad", {"draft": "a/name"}, "cannot draft with str; give a model"),
    (decoders.catalog["greedy"](), {"beams": 2}, "greedy has its settings already"),
    ("greedy", {"stop": "x"}, "need a tokenizer"),
    ("greedy", {"tokenizer": "gpt2"}, "tokenizer must be a tokenizer of transformers"),
    ("greedy", {"draft_tokenizer": build_tokenizer()}, "give draft and tokenizer too"),
], ids=lambda value: ", ".join(value) if isinstance(value, dict) else "")  # fmt: skip
def test_a_decoder_that_cannot_be_made_is_refused_when_it_is_named(decoder, options, words):
    """Some of these were refused only by the first `generate`, and some raised Python's errors."""
    with pytest.raises(decoders.InputError, match=words):
        decoders.hf(decoder, **options)


def test_two_rows_have_no_streamer_and_need_a_pad_token(llama):
    model, given = llama[0], {**inputs(TEXTS[:2]), "max_new_tokens": 3}
    method = decoders.hf("greedy")
    with pytest.raises(decoders.InputError, match="A streamer follows one text and there are 2"):
        model.generate(**given, streamer=Heard(), custom_generate=method)
    bare = copy.deepcopy(model)
    bare.generation_config.pad_token_id = bare.config.pad_token_id = None
    criteria = StoppingCriteriaList([AfterTwoAlike()])
    with pytest.raises(decoders.InputError, match="give generate a pad_token_id"):
        bare.generate(**given, stopping_criteria=criteria, custom_generate=method)


class Echo(CandidateGenerator):
    """Proposes the first tokens of the text again."""

    def get_candidates(self, input_ids, **options):
        return torch.cat([input_ids, input_ids[:, :3]], dim=1), None


class Strange(CandidateGenerator):
    def get_candidates(self, input_ids):
        return torch.cat([input_ids, torch.full((1, 1), 10_000)], dim=1), None


class Needy(CandidateGenerator):
    requires_model_outputs = True

    def get_candidates(self, input_ids, model_outputs, **options):
        raise AssertionError


def test_candidate_generators_draft_in_batches(llama):
    model, batch = llama[0], inputs(TEXTS)
    options = {"max_new_tokens": 12, "return_dict_in_generate": True, **GREEDY}
    method = decoders.hf("speculative", draft=Echo())
    output = model.generate(**batch, **options, custom_generate=method)
    assert new(output.sequences, batch) == new(model.generate(**batch, **options).sequences, batch)
    assert sum(m.drafted for m in output.metrics) > 0


def test_generators_that_need_more_than_the_text_are_refused_by_name(llama):
    with pytest.raises(decoders.InputError, match=r"^Needy drafts from outputs of the model"):
        decoders.hf("speculative", draft=Needy())
    method = decoders.hf("speculative", draft=Strange())
    with pytest.raises(decoders.ModelError, match="Strange proposed the token 10000"):
        llama[0].generate(**inputs([TEXTS[0]]), max_new_tokens=4, custom_generate=method)
