"""Two tokenizers as one vocabulary: what the draft proposes and reads, in the target's tokens (Timor et al. 2025, arXiv 2502.05202,
token-level intersection).

Tokens are compared by the bytes that they stand for. The draft proposes only tokens that both know: its logits of these, in the
target's order, and -inf for all others, before any warping. Each token of the target is read by the draft as a fixed sequence of its
own tokens. So a rule gets p over the target's vocabulary, and the q that was sampled: the law of its output is untouched.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers.convert_slow_tokenizer import bytes_to_unicode

from decoders.errors import InputError
from decoders.shapes import TokenId

ROLES = ("bos_token_id", "eos_token_id")  # special tokens that mean the same in all tokenizers
BYTES = {letter: value for value, letter in bytes_to_unicode().items()}


@dataclass(frozen=True)
class Vocabulary:
    """What the tokens of a tokenizer stand for: `pieces` bytes by id; `specials` the text, or the role, of special tokens by id."""

    pieces: dict[TokenId, bytes]
    specials: dict[TokenId, str]

    @classmethod
    def of(cls, tokenizer: Any) -> "Vocabulary":
        special = {*tokenizer.all_special_ids, *(i for i, t in tokenizer.added_tokens_decoder.items() if t.special)}
        byte_level = _is_byte_level(tokenizer)
        words = tokenizer.get_vocab()
        pieces = {i: _bytes(word, byte_level) for word, i in words.items() if i not in special}
        roles = {getattr(tokenizer, role, None): role for role in ROLES}
        specials = {i: roles.get(i, word) for word, i in words.items() if i in special}
        return cls({i: piece for i, piece in pieces.items() if piece}, specials)

    @property
    def size(self) -> int:
        return len(self.pieces) + len(self.specials)


def _is_byte_level(tokenizer: Any) -> bool:
    """Whether letters stand for bytes, as in GPT-2's tokenizer; in SentencePiece's they stand for themselves, and spaces are ▁."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return False
    parts = json.loads(backend.to_str())
    return "ByteLevel" in json.dumps([parts.get("pre_tokenizer"), parts.get("decoder")])


def _bytes(word: str, byte_level: bool) -> bytes:
    if byte_level:
        if all(letter in BYTES for letter in word):
            return bytes(BYTES[letter] for letter in word)
        return word.encode()
    if len(word) == 6 and word.startswith("<0x") and word.endswith(">"):
        return bytes([int(word[3:5], 16)])
    return word.replace("▁", " ").encode(errors="ignore")


@dataclass(frozen=True)
class Translation:
    """Between a target's vocabulary of `size` ids and a draft's.

    target_ids, draft_ids   (shared,) the tokens that both know;   unknown  the draft's token for what it cannot spell
    """

    target: Vocabulary
    draft: Vocabulary
    size: int
    target_ids: Tensor
    draft_ids: Tensor
    unknown: TokenId
    _read: dict[TokenId, tuple[TokenId, ...]] = field(default_factory=dict)

    @classmethod
    def between(cls, target: Vocabulary, draft: Vocabulary, size: int, draft_size: int) -> "Translation":
        """Raises InputError if no token of text is shared. `size`, `draft_size`: how many logits the models give."""
        ids = {piece: i for i, piece in reversed(draft.pieces.items()) if i < draft_size}
        special = {name: i for i, name in draft.specials.items() if i < draft_size}
        pairs: dict[TokenId, TokenId] = {}
        for i, piece in target.pieces.items():
            if i < size and piece in ids:
                pairs.setdefault(ids[piece], i)  # each token of the draft stands for one of the target
        if not pairs:
            raise InputError(
                "The draft and the target share no tokens; take a draft whose tokenizer is more like the target's."
            )
        for i, name in target.specials.items():
            if i < size and name in special:
                pairs.setdefault(special[name], i)
        shared = sorted((i, j) for j, i in pairs.items())
        unknown = next((special[role] for role in ROLES if role in special), min(ids.values()))
        target_ids, draft_ids = torch.tensor(shared).T
        return cls(target, draft, size, target_ids, draft_ids, unknown)

    @property
    def known(self) -> float:
        """The share of the target's tokens that the draft may propose."""
        return len(self.target_ids) / self.target.size

    def over_target(self, logits: Tensor) -> Tensor:
        """The draft's logits (..., its own) in the target's vocabulary: (..., V)."""
        out = logits.new_full((*logits.shape[:-1], self.size), -math.inf)
        out[..., self.target_ids.to(logits.device)] = logits[..., self.draft_ids.to(logits.device)]
        return out

    def read(self, token: TokenId) -> tuple[TokenId, ...]:
        """What the draft reads for a token of the target: the same one, or the longest pieces that spell it from left to right."""
        if token not in self._read:
            self._read[token] = tuple(self._spelled(token))
        return self._read[token]

    def read_all(self, tokens: Sequence[TokenId]) -> list[TokenId]:
        return [read for token in tokens for read in self.read(token)]

    @cached_property
    def _same(self) -> dict[TokenId, TokenId]:
        return dict(zip(self.target_ids.tolist(), self.draft_ids.tolist(), strict=True))

    @cached_property
    def _pieces(self) -> dict[bytes, TokenId]:
        return {piece: i for i, piece in reversed(self.draft.pieces.items())}

    @cached_property
    def longest(self) -> int:
        """The most tokens that one token of the target may be read as."""
        return max((len(piece) for piece in self.target.pieces.values()), default=1)

    def _spelled(self, token: TokenId) -> Iterator[TokenId]:
        rest = self.target.pieces.get(token, b"")
        if token in self._same or not rest:
            yield self._same.get(token, self.unknown)
            return
        while rest:
            length = next((n for n in range(len(rest), 0, -1) if rest[:n] in self._pieces), 0)
            yield self._pieces[rest[:length]] if length else self.unknown
            rest = rest[max(length, 1) :]
