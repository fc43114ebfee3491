"""The presets as tiny models of their architectures, with chat templates: they load and answer."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import decoders
from decoders import generate, load_pair
from tests.models import build_tokenizer
from tests.workbench.models.test_presets import CONFIGS
from workbench.models.presets import PAIRS

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA = (
    "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}"
    "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant"
    "<|end_header_id|>\n\n{% endif %}"
)
GEMMA = (
    "{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
OLMO = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
TEMPLATES = {"llama": LLAMA, "gemma3_text": GEMMA, "olmo2": OLMO}
CHAT = [
    {"role": "user", "content": "ab ba"},
    {"role": "assistant", "content": "aab"},
    {"role": "user", "content": "bb"},
]
PRESETS = {
    (CONFIGS[pair.target.id].model_type, CONFIGS[pair.draft.id].model_type): name
    for name, pair in PAIRS.items()
    if pair.target and pair.draft and pair.target.id in CONFIGS
}


def tiny(model_type, layers, seed):
    """A model of an architecture in which all that can be small is small."""
    wanted = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": layers, "head_dim": 8,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": len(build_tokenizer()),
        "word_embed_proj_dim": 32, "ffn_dim": 48, "max_position_embeddings": 512,
        "num_local_experts": 4, "sliding_window": 16, "pad_token_id": 0,
    }  # fmt: skip
    usual = AutoConfig.for_model(model_type)
    own = {name: value for name, value in wanted.items() if hasattr(usual, name)}
    if getattr(usual, "layer_types", None):
        own["layer_types"] = usual.layer_types[:layers]
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **own)).float().eval()


@pytest.mark.parametrize("kinds", PRESETS, ids=lambda kinds: PRESETS[kinds])
def test_a_preset_loads_and_answers_chats(kinds, tmp_path):
    for role, model_type, layers in (("target", kinds[0], 2), ("draft", kinds[1], 1)):
        tokenizer = build_tokenizer()
        tokenizer.chat_template = TEMPLATES.get(kinds[0], CHATML)
        tiny(model_type, layers, layers).save_pretrained(tmp_path / role)
        tokenizer.save_pretrained(tmp_path / role)
    pair = load_pair(tmp_path, dtype="float32", device="cpu")
    options = {"max_new_tokens": 12, "temperature": 0.0, "ignore_eos": True}
    slow = generate(pair, CHAT, "greedy", **options)
    assert len(slow.tokens) == 12
    for name in ("speculative", "block", "suffix", "best_first"):
        assert generate(pair, CHAT, name, **options).tokens == slow.tokens, name
    rendered = pair.tokenizer.apply_chat_template(
        CHAT, add_generation_prompt=True, return_dict=True
    )["input_ids"]
    assert generate(pair, rendered, "greedy", **options).tokens == slow.tokens
    sampled = decoders.catalog["mtad"]()
    assert generate(pair, CHAT, sampled, max_new_tokens=12, ignore_eos=True, seed=1).tokens
