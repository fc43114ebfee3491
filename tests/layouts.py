"""Tokenizers laid out as those of Llama 2, Mistral and Gemma, and models with equal weights.

The models have the same weights for the same words."""

import random
import string
import zlib
from collections.abc import Sequence

import torch
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from decoders import ModelPair, Result, generate
from tests.models import build

BYTES = [f"<0x{i:02X}>" for i in range(256)]
LETTERS = ["▁", *string.ascii_letters, *string.digits, *".,!?"]
ENDS = ["<unk>", "<s>", "</s>"]
TEXT = "The fox ran 7 miles.\nIt was 10 by 5!"


def _gemma() -> list[str]:
    begin = ["<pad>", "</s>", "<s>", "<unk>", "<mask>", "[@BOS@]"]
    newlines, spaces = ["\n" * i for i in range(1, 31)], ["▁" * i for i in range(2, 32)]
    words = [*begin, *(f"<unused{i}>" for i in range(102)), *newlines, *spaces]
    tags = [f"<h{i}>" for i in range(217 - len(words))]
    return [*words, *tags, *BYTES, "in", "▁i", *LETTERS]


# The words in the order of their ids. Llama 2 and the first Mistral have no piece for a newline:
# they write its byte token.
LAYOUTS = {
    "llama 2": [*ENDS, *BYTES, "▁t", "er", "in", *LETTERS],
    "mistral 1": [*ENDS, *BYTES, "▁a", "er", "he", *reversed(LETTERS)],
    "gemma": _gemma(),
}


# Each once as a target and once as a draft.
NAMES = list(LAYOUTS)
PAIRS = list(zip(NAMES, [*NAMES[1:], NAMES[0]], strict=True))


def tokenizer_of(name: str, order: int = 0) -> PreTrainedTokenizerFast:
    """SentencePiece's BPE with byte tokens for what has no piece.

    `order` is a seed for the order of its get_vocab()."""
    words = LAYOUTS[name]
    known = set(words) - set(BYTES)
    merges = [
        (word[:i], word[i:])
        for word in words
        for i in range(1, len(word))
        if {word[:i], word[i:], word} <= known
    ]
    bpe = models.BPE(
        {word: i for i, word in enumerate(words)},
        merges,
        byte_fallback=True,
        unk_token="<unk>",
        fuse_unk=True,
    )
    tokenizer = Tokenizer(bpe)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    whole = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    shuffled = random.Random(order).sample(sorted(whole.get_vocab().items()), len(words))
    whole.get_vocab = lambda: dict(shuffled)
    return whole


def model_of(name: str) -> PreTrainedModel:
    """A random model whose weights for a word depend on that word alone.

    What no text is written with is unlikely."""
    words = LAYOUTS[name]
    newline = "\n" if "\n" in words else "<0x0A>"
    model = build(vocab_size=len(words))
    model.model.layers.load_state_dict(build().model.layers.state_dict())
    with torch.no_grad():
        for i, word in enumerate(words):
            same = "newline" if word == newline else word
            noise = torch.randn(
                2, 32, generator=torch.Generator().manual_seed(zlib.crc32(same.encode()))
            )
            model.model.embed_tokens.weight[i] = noise[0]
            model.lm_head.weight[i] = (1.0 if word in {*LETTERS, newline} else 0.1) * noise[1]
    return model


def pair_of(target: str, draft: str, order: int = 0) -> ModelPair:
    tokenizers = [tokenizer_of(name, order) for name in (target, draft)]
    return ModelPair(model_of(target), model_of(draft), *tokenizers)


def written(pair: ModelPair) -> Sequence[Result]:
    return generate(pair, [TEXT, "7 7 7", "a"], "speculative", max_new_tokens=40, seed=5)
