"""A draft model with another tokenizer (Translated): two tokenizers as one vocabulary.

Tokens are compared by the bytes that they stand for. The draft proposes only tokens that both know.
A tree of the draft's tokens grows beside each request's tree.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from transformers.convert_slow_tokenizer import bytes_to_unicode

from decoders.engine.protocols import Answer, Layers, Passes, Wants, of_one_pass
from decoders.errors import InputError
from decoders.inputs import special_tokens
from decoders.shapes import NodeId, TokenId
from decoders.tree import TokenTree

ROLES = ("bos_token_id", "eos_token_id")  # special tokens that mean the same in all tokenizers
BYTES = {letter: value for value, letter in bytes_to_unicode().items()}
# SentencePiece's token for a byte of a character for which it has no piece.
BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True)
class Vocabulary:
    """The meanings of a tokenizer's tokens.

    Attributes:
        pieces: the bytes of each token by id: the text tokens by rising id, then the byte tokens by
            rising id. Several tokens may stand for the same bytes, as "7" and "<0x37>" do; a text
            is written with the first of them.
        specials: the text, or the role, of each special token by id
    """

    pieces: dict[TokenId, bytes]
    specials: dict[TokenId, str]

    @classmethod
    def of(cls, tokenizer: Any) -> "Vocabulary":
        special = special_tokens(tokenizer)
        # get_vocab() has the order of a hash map, which differs between processes.
        words = sorted(
            (BYTE_TOKEN.fullmatch(word) is not None, i, word)
            for word, i in tokenizer.get_vocab().items()
        )
        read = _letters if _is_byte_level(tokenizer) else _pieces
        roles = {getattr(tokenizer, role, None): role for role in ROLES}
        return cls(
            {i: piece for _, i, word in words if i not in special and (piece := read(word))},
            {i: roles.get(i, word) for _, i, word in words if i in special},
        )

    def below(self, size: int) -> "Vocabulary":
        return Vocabulary(
            {i: piece for i, piece in self.pieces.items() if i < size},
            {i: name for i, name in self.specials.items() if i < size},
        )

    @cached_property
    def spellings(self) -> dict[bytes, list[TokenId]]:
        """The tokens that stand for the same bytes, in the order of `pieces`."""
        tokens: dict[bytes, list[TokenId]] = defaultdict(list)
        for i, piece in self.pieces.items():
            tokens[piece].append(i)
        return dict(tokens)


def _is_byte_level(tokenizer: Any) -> bool:
    """Whether letters stand for bytes, as in GPT-2's tokenizer.

    In SentencePiece's they stand for themselves, and spaces are ▁.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return False
    parts = json.loads(backend.to_str())
    return "ByteLevel" in json.dumps([parts.get("pre_tokenizer"), parts.get("decoder")])


def _letters(word: str) -> bytes:
    spelled = all(letter in BYTES for letter in word)
    return bytes(BYTES[letter] for letter in word) if spelled else word.encode()


def _pieces(word: str) -> bytes:
    byte = BYTE_TOKEN.fullmatch(word)
    return bytes.fromhex(byte[1]) if byte else word.replace("▁", " ").encode(errors="ignore")


@dataclass(frozen=True)
class Translation:
    """The translation between a target's vocabulary of `size` ids and a draft's.

    Attributes:
        target: the meanings of the target's tokens
        draft: the meanings of the draft's tokens
        size: V, the number of the target's logits
        target_ids: the tokens that both know, as the target's ids, (shared,)
        draft_ids: the same as the draft's ids, (shared,)
        unknown: the draft's token for what it cannot spell
    """

    target: Vocabulary
    draft: Vocabulary
    size: int
    target_ids: torch.Tensor
    draft_ids: torch.Tensor
    unknown: TokenId
    _read: dict[TokenId, tuple[TokenId, ...]] = field(default_factory=dict)

    @classmethod
    def between(
        cls, target: Vocabulary, draft: Vocabulary, size: int, draft_size: int
    ) -> "Translation":
        """Pair the tokens of two vocabularies.

        Of the tokens that stand for the same bytes, the first of the target is paired with the
        first of the draft, the second with the second: "7" with "7", "<0x37>" with "<0x37>", and a
        newline with a newline, whichever kind of token either has for it.

        Args:
            target: the meanings of the target's tokens
            draft: the meanings of the draft's tokens
            size: the number of the target's logits
            draft_size: the number of the draft's logits

        Raises:
            InputError: if no token of text is shared
        """
        target, draft = target.below(size), draft.below(draft_size)
        special = {name: i for i, name in draft.specials.items()}
        shared = [
            pair
            for piece, ids in target.spellings.items()
            for pair in zip(ids, draft.spellings.get(piece, ()), strict=False)
        ]
        if not shared:
            raise InputError(
                "The draft and the target share no tokens; take a draft whose tokenizer is more "
                "like the target's."
            )
        shared += [(i, special[name]) for i, name in target.specials.items() if name in special]
        unknown = next((special[role] for role in ROLES if role in special), min(draft.pieces))
        target_ids, draft_ids = torch.tensor(sorted(shared)).T
        return cls(target, draft, size, target_ids, draft_ids, unknown)

    @property
    def known(self) -> float:
        return len(self.target_ids) / (len(self.target.pieces) + len(self.target.specials))

    def over_target(self, logits: torch.Tensor) -> torch.Tensor:
        """Translate the draft's logits (..., its own) to the target's vocabulary: (..., V)."""
        out = logits.new_full((*logits.shape[:-1], self.size), -math.inf)
        out[..., self.target_ids.to(logits.device)] = logits[..., self.draft_ids.to(logits.device)]
        return out

    def read(self, token: TokenId) -> tuple[TokenId, ...]:
        """The tokens that the draft reads for a token of the target.

        They are the same token, or the longest pieces that spell it from left to right.
        """
        if token not in self._read:
            self._read[token] = tuple(self._spelled(token))
        return self._read[token]

    @cached_property
    def _same(self) -> dict[TokenId, TokenId]:
        return dict(zip(self.target_ids.tolist(), self.draft_ids.tolist(), strict=True))

    @cached_property
    def longest(self) -> int:
        """The most tokens that one token of the target may be read as."""
        return max((len(piece) for piece in self.target.pieces.values()), default=1)

    def _spelled(self, token: TokenId) -> Iterator[TokenId]:
        rest = self.target.pieces.get(token, b"")
        if token in self._same or not rest:
            yield self._same.get(token, self.unknown)
            return
        spellings = self.draft.spellings
        while rest:
            length = next((n for n in range(len(rest), 0, -1) if rest[:n] in spellings), 0)
            yield spellings[rest[:length]][0] if length else self.unknown
            rest = rest[max(length, 1) :]


class Translated:
    """A prepared draft model that reads and answers in the target's tokens.

    Everything that is not listed here is the model's.

    Args:
        inner: the prepared model, which has its own cache or is packed
        translation: the translation between the two vocabularies

    Attributes:
        positions: None, because after its last position it proposes all shared tokens alike
        vocabulary: V, that of the target
        row_bytes: the most bytes of cache for one token of the target
    """

    positions = None

    def __init__(self, inner: Any, translation: Translation):
        self.inner, self.translation = inner, translation
        self.vocabulary = translation.size
        self.row_bytes = inner.row_bytes * translation.longest

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def engine(self, rows: int = 0, most_rows: int | None = None) -> Passes:
        return TranslatedPasses(
            self, self.inner.engine(rows, most_rows and most_rows * self.translation.longest)
        )

    def follow(self) -> bool:
        return self.inner.follow()

    def refuse_features(self, layers: Layers) -> None:
        raise InputError(
            f"The {self.inner.name} reads its own tokens, so it has no hidden states of the "
            "target's."
        )


class Shadow:
    """A request's tree in the draft's tokens.

    Each node of the request's tree has a chain of nodes here, the last of which stands for it.
    """

    def __init__(self, tree: TokenTree, translation: Translation):
        self.source, self.translation, self.commits = tree, translation, tree.commits
        prompt = [translation.read(token) for token in tree.tokens[: tree.prompt_length]]
        self.tree = TokenTree([token for tokens in prompt for token in tokens])
        self.last = {node: end - 1 for node, end in enumerate(accumulate(map(len, prompt)))}

    def follow(self) -> None:
        """Grow and drop what the request's tree has grown and dropped since the last call."""
        source, tree = self.source, self.tree
        live = [*source.trunk, *source.tail] if self.commits != source.commits else source.tail
        for node in live:
            if node in self.last:
                continue
            # A chain of new nodes even if another chain begins alike: each is asked about once.
            end = self.last[source.parents[node]]
            for token in self.translation.read(source.tokens[node]):
                tree.tokens.append(token)
                tree.parents.append(end)
                tree.depths.append(tree.depths[end] + 1)
                end = len(tree.tokens) - 1
                tree.tail.append(end)
            self.last[node] = end
        if self.commits != source.commits:
            self.commits = source.commits
            tree.keep([self.last[node] for node in (source.trunk[-1], *source.tail)])
            self.last = {node: self.last[node] for node in live}


class TranslatedPasses(Passes):
    """Passes of a translated draft over the trees of its own tokens.

    Args:
        model: the translated draft
        inner: the passes of its model
    """

    def __init__(self, model: Translated, inner: Passes):
        self.model, self.inner = model, inner
        self._shadows: dict[TokenTree, Shadow] = {}

    def admit(self, tree: TokenTree, rows: int) -> bool:
        shadow = Shadow(tree, self.model.translation)
        admitted = self.inner.admit(shadow.tree, rows)
        if admitted:
            self._shadows[tree] = shadow
        return admitted

    def release(self, tree: TokenTree) -> None:
        if (shadow := self._shadows.pop(tree, None)) is not None:
            self.inner.release(shadow.tree)

    def rows_of(self, tree: TokenTree) -> int:
        return self.inner.rows_of(self._shadows[tree].tree)

    def run(self, wants: Wants, chunk: int | None = None, features: Layers = ()) -> list[Answer]:
        """Run a pass and answer in the target's tokens.

        Nodes after the draft's last position get logits 0 for all shared tokens: a proposal is
        valid if its distribution is known.
        """
        fitting_of, positions = [], self.model.inner.positions
        for tree, nodes in wants:
            shadow = self._shadows[tree]
            shadow.follow()
            fitting_of.append(
                [
                    n
                    for n in nodes
                    if positions is None or shadow.tree.depths[shadow.last[n]] < positions
                ]
            )
        inner = [
            (self._shadows[tree].tree, [self._shadows[tree].last[n] for n in nodes])
            for (tree, _), nodes in zip(wants, fitting_of, strict=True)
            if nodes
        ]
        answers = iter(self.inner.run(inner, chunk) if inner else ())
        return of_one_pass(
            [
                self._answer(tree, nodes, fitting, next(answers) if fitting else None)
                for (tree, nodes), fitting in zip(wants, fitting_of, strict=True)
            ]
        )

    def _answer(
        self, tree: TokenTree, nodes: Sequence[NodeId], fitting: list[NodeId], answer: Answer | None
    ) -> Answer:
        translation, inner = self.model.translation, self.model.inner
        dtype = torch.float64 if inner.dtype == torch.float64 else torch.float32
        own = torch.zeros(len(nodes), inner.vocabulary, dtype=dtype, device=inner.device)
        if answer is None:
            answer = Answer(own, None, self.rows_of(tree) * inner.row_bytes, 0, passes=0)
        elif answer.part is None:
            return answer
        else:
            own[[nodes.index(n) for n in fitting]] = torch.as_tensor(answer.rows)[answer.part]
        return replace(answer, rows=translation.over_target(own), part=slice(0, len(nodes)))
