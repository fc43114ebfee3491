"""Builders of tiny random models and of a tokenizer for them."""

from pathlib import Path
from typing import Any
from unittest import mock

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from tokenizers.decoders import ByteLevel
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

import decoders
from decoders.engine.loading.load import EMBEDDED
from tests import heads

VOCABULARY = 67
POSITIONS = 512
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": POSITIONS,
    # the usual 0.02 gives nearly uniform distributions, which hide errors
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
_GEMMA = {"num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.2}
FAMILIES = {
    "llama": ("LlamaConfig", {"num_key_value_heads": 2}),
    "opt": (
        "OPTConfig",
        {"ffn_dim": 48, "word_embed_proj_dim": 32, "init_std": 0.3, "pad_token_id": 1},
    ),
    "gpt2": ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": POSITIONS}),
    "qwen3": ("Qwen3Config", {"num_key_value_heads": 2, "head_dim": 8}),
    "gpt_neox": ("GPTNeoXConfig", {}),
    "gemma": ("GemmaConfig", _GEMMA),
    "gemma2": (
        "Gemma2Config",
        {
            **_GEMMA,
            "layer_types": ["full_attention"] * 2,
            "attn_logit_softcapping": 3.0,
            "query_pre_attn_scalar": 8,
        },
    ),
    "olmo2": ("Olmo2Config", {"num_key_value_heads": 2}),
}


def build(
    family: str = "llama", dtype: torch.dtype = torch.float64, seed: int = 0, **changes
) -> PreTrainedModel:
    """A tiny random causal language model; `changes` go into its config."""
    torch.manual_seed(seed)
    config, own = FAMILIES[family]
    config = getattr(transformers, config)(**{**_SIZES, **own, **changes})
    attention = "eager" if family == "gemma2" else "sdpa"  # "sdpa" leaves soft-capping out
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention).to(dtype).eval()


def build_both(
    dtype: torch.dtype = torch.float64, eos: int | list | None = None, noise=0.02, **changes
) -> tuple[PreTrainedModel, PreTrainedModel]:
    """A random Llama and, as its draft, the same with noise on its weights: some drafts are
    kept."""
    target, draft = build(dtype=dtype, **changes), build(dtype=dtype, **changes)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in draft.parameters():
            weight += noise * torch.randn(weight.shape, generator=generator, dtype=dtype)
    for model in (target, draft):
        model.generation_config.eos_token_id = eos
    return target, draft


def build_pair(
    dtype: torch.dtype = torch.float64, tokenizer=None, **others: Any
) -> decoders.ModelPair:
    """The models of `build_both`."""
    return decoders.ModelPair(*build_both(dtype, **others), tokenizer)


def save_small_pair(folder: Path) -> Path:
    """A folder that can take the place of the embedded pair where no text is read.

    It has that pair's tokenizer and positions and about its acceptance; its texts are random
    words."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(EMBEDDED / "target")
    models = build_both(
        torch.float32, eos=tokenizer.eos_token_id, noise=0.008, vocab_size=len(tokenizer),
        max_position_embeddings=1024,
    )  # fmt: skip
    for role, model in zip(("target", "draft"), models, strict=True):
        model.save_pretrained(folder / role)
        tokenizer.save_pretrained(folder / role)
    heads.save_small_head(folder / "head", len(tokenizer), models[0].config.hidden_size)
    return folder


def build_tokenizer(words: tuple[str, ...] = ()) -> PreTrainedTokenizerFast:
    """Byte-level tokens, VOCABULARY of them: <end>, then `words`, then single bytes to the limit.

    é takes two of them."""
    alphabet = [
        pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(c)[0][0] for c in "é ,.!?"
    ]
    pieces = dict.fromkeys(
        [
            "<end>",
            *words,
            *"".join(alphabet),
            *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
        ]
    )
    tokenizer = Tokenizer(models.BPE(dict(zip(pieces, range(VOCABULARY), strict=False)), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


CHATML = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content | trim }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
# One that writes the start token, a system message of its own, and refuses two of a role in a row.
INST = """{{ bos_token }}{% if messages[0].role != "system" %}[SYS]Be kind.[/SYS]{% endif %}
{%- for m in messages %}{% if not loop.first and m.role == loop.previtem.role %}
{{- raise_exception("Roles must alternate") }}{% endif %}
{%- if m.role == "assistant" %}{{ " " + m.content + eos_token }}
{%- else %}[INST] {{ m.content }} [/INST]{% endif %}{% endfor %}"""


def build_chat_tokenizer(
    template: str | None = CHATML, adds: tuple[str, ...] = (), eos: str = "<end>"
) -> PreTrainedTokenizerFast:
    """Every byte is a token; the special ones are <end>, <s>, <|im_start|> and <|im_end|>.

    `adds` has those that it adds to every text, "<s>" before it and "<end>" after it."""
    special = ["<end>", "<s>", "<|im_start|>", "<|im_end|>"]
    pieces = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["<s>"] * ("<s>" in adds) + ["$A"] + ["<end>"] * ("<end>" in adds),
        special_tokens=[("<s>", 1), ("<end>", 0)],
    )
    found = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token=eos,
        additional_special_tokens=special[2:],
    )  # fmt: skip
    found.chat_template = template
    return found


def whole_softmax():
    """For passes with a softmax in the model's own dtype: "eager" attention rounds to float32."""
    return mock.patch("torch.nn.functional.softmax", lambda x, dim, dtype=None: x.softmax(dim))


def plain_logits(model: PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    """The next-token logits (V,) behind `tokens` by the model's own forward pass.

    Its softmax is in the model's dtype."""
    with torch.inference_mode(), whole_softmax():
        return model(torch.tensor([tokens]), use_cache=False).logits[0, -1]


def by_transformers(
    model: PreTrainedModel,
    prompt: list[int],
    budget: int,
    eos: int | list[int] | None = None,
    **options,
) -> list[int]:
    """The new tokens of `generate` without sampling."""
    ids = torch.tensor([prompt])
    options |= {
        "max_new_tokens": budget,
        "do_sample": False,
        "eos_token_id": eos,
        "pad_token_id": 0,
    }
    return model.generate(ids, attention_mask=torch.ones_like(ids), **options)[
        0, len(prompt) :
    ].tolist()


def folder_of_three(folder: Path) -> Path:
    """A target, a draft and a head in one folder, as the embedded models are."""
    target = build(num_hidden_layers=7)
    target.save_pretrained(folder / "target")
    build(seed=1).save_pretrained(folder / "draft")
    for name in ("target", "draft"):
        build_tokenizer().save_pretrained(folder / name)
    heads.save_small_head(folder / "head", VOCABULARY, target.config.hidden_size)
    return folder


def halved(model):
    """The model with weights that float16 holds, as published ones are."""
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.bfloat16())
    return model
