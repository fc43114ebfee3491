"""The tokenizer of a GGUF file, as llama.cpp applies it (GgufTokenizer)."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

from decoders.engine.gguf.library import File
from decoders.errors import InputError
from decoders.shapes import TokenId

# Kinds of vocabularies: SentencePiece's, and those in which letters stand for bytes, as in GPT-2's.
PIECES, BYTE_PAIRS = 1, 2


@dataclass(frozen=True)
class Special:
    """What tokenizers of transformers say of an added token.

    Attributes:
        content: its text
        special: whether it is no text
    """

    content: str
    special: bool = True


class GgufTokenizer:
    """The tokenizer of a GGUF file, with what this project uses of one of transformers.

    Args:
        file: the loaded file

    Attributes:
        name_or_path: the file's path
        bos_token_id: the token that begins a text, or None
        eos_token_id: the token that ends one, or None
        byte_level: whether letters stand for bytes in the names of tokens
        chat_template: the template of a chat, or None
    """

    def __init__(self, file: File):
        self.llama, self.vocab, self.size = file.llama, file.vocab, file.vocabulary
        self.name_or_path, self._file = file.source, file
        self.bos_token_id = self._role(self.llama.llama_vocab_bos)
        self.eos_token_id = self._role(self.llama.llama_vocab_eos)
        kind = self.llama.llama_vocab_type(self.vocab)
        self.byte_level = kind == BYTE_PAIRS
        # Whether texts get a space in front, which is no part of them.
        said = file.said("tokenizer.ggml.add_space_prefix")
        self._strips = said == "true" if said else kind == PIECES
        template = self.llama.llama_model_chat_template(file.pointer, None)
        self.chat_template = template.decode(errors="replace") if template else None

    def _role(self, asked: Any) -> TokenId | None:
        token = asked(self.vocab)
        return token if token >= 0 else None

    def _name(self, token: TokenId) -> str:
        return self.llama.llama_vocab_get_text(self.vocab, token).decode(errors="replace")

    @property
    def bos_token(self) -> str | None:
        return None if self.bos_token_id is None else self._name(self.bos_token_id)

    @property
    def eos_token(self) -> str | None:
        return None if self.eos_token_id is None else self._name(self.eos_token_id)

    @cached_property
    def _vocab(self) -> dict[str, TokenId]:
        return {self._name(token): token for token in range(self.size)}

    def get_vocab(self) -> dict[str, TokenId]:
        """The id of each token by its name."""
        return self._vocab

    @cached_property
    def added_tokens_decoder(self) -> dict[TokenId, Special]:
        """The tokens that are no text."""
        return {
            token: Special(self._name(token))
            for token in range(self.size)
            if self.llama.llama_vocab_is_control(self.vocab, token)
        }

    @property
    def all_special_ids(self) -> list[TokenId]:
        return list(self.added_tokens_decoder)

    def __call__(self, text: str, add_special_tokens: bool = True) -> SimpleNamespace:
        """The `input_ids` of a text; names of special tokens in it become these tokens.

        Args:
            text: the text
            add_special_tokens: whether those that begin or end a text are added
        """
        given = text.encode()
        ids: Any = (self.llama.llama_token * (len(given) + 8))()
        count = self.llama.llama_tokenize(
            self.vocab, given, len(given), ids, len(ids), add_special_tokens, True
        )
        if count < 0:
            raise InputError("llama.cpp cannot tokenise this text; shorten it.")
        return SimpleNamespace(input_ids=list(ids[:count]))

    def decode(
        self,
        tokens: Sequence[TokenId],
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool = False,
    ) -> str:
        """The text of tokens.

        Args:
            tokens: their ids
            skip_special_tokens: whether those that are no text are left out
            clean_up_tokenization_spaces: not done, whatever it is
        """
        # Piece by piece: llama_detokenize would take spaces away, as those before commas.
        pieces = (
            self._piece(token, self._strips and not place, not skip_special_tokens)
            for place, token in enumerate(tokens)
        )
        return b"".join(pieces).decode(errors="replace")

    def _piece(self, token: TokenId, strip: bool, special: bool) -> bytes:
        """The bytes of a token.

        Args:
            token: its id
            strip: whether a space at its start is left out
            special: whether it has a name if it is no text; otherwise it has no bytes
        """
        size = 64
        while True:
            text = ctypes.create_string_buffer(size)
            length = self.llama.llama_token_to_piece(self.vocab, token, text, size, strip, special)
            if length >= 0:
                return text.raw[:length]
            size = -length

    def batch_decode(self, texts: Sequence[Sequence[TokenId]], **options: Any) -> list[str]:
        """The text of each list of tokens, as `decode` gives it."""
        return [self.decode(tokens, **options) for tokens in texts]

    def apply_chat_template(
        self, messages: list[dict[str, str]], tokenize: bool = False, **options: Any
    ) -> str:
        """The text of a chat.

        Args:
            messages: each with its role and content
            tokenize: not done
            options: further values of the template, as `add_generation_prompt`
        """
        # It returns a tuple, whatever its annotation says.
        rendered: Any = render_jinja_template(
            [messages],
            chat_template=self.chat_template,
            bos_token=self.bos_token or "",
            eos_token=self.eos_token or "",
            **options,
        )
        return rendered[0][0]
