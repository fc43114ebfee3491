"""The tokens of an answer: by their ids, or where none are told, one token by its text."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from decoders import InputError, ModelPair
from decoders.errors import quoted, refuse
from workbench.engines.record import Record

Ids = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Spelling:
    """Tokens that are known by their texts alone: those with the same text count as one.

    Attributes:
        tokens: for each text the first token that has it
        first: for each token the first with its text, (V,)
    """

    tokens: Mapping[str, int]
    first: torch.Tensor

    @staticmethod
    def of(pair: ModelPair) -> "Spelling":
        """The spelling of the pair's tokens."""
        texts = pair.tokenizer.batch_decode(
            [[token] for token in range(pair.vocabulary)], skip_special_tokens=True
        )
        tokens: dict[str, int] = {}
        first = [tokens.setdefault(_shown(text), token) for token, text in enumerate(texts)]
        return Spelling(tokens, torch.tensor(first, device=pair.target.device))

    def merged(self, law: torch.Tensor) -> torch.Tensor:
        """A law of tokens as one of their texts, (…, V)."""
        return torch.zeros_like(law).index_add_(-1, self.first, law)


def _shown(text: str) -> str:
    """Part of a character is sent as nothing, or as a sign for it."""
    return "" if "\ufffd" in text else text


def drawn_tokens(record: Record, pair: ModelPair, spelling: Spelling | None) -> Ids:
    """The tokens of an answer, with the one that ended it.

    Args:
        record: the answer
        pair: the model that should have written it
        spelling: how its one token is found by its text; None takes ids

    Raises:
        InputError: if they are not told, or are not of this model
    """
    if spelling is not None:
        token = spelling.tokens.get(_shown(record.text))
        if token is None:
            raise InputError(
                f"Engine {record.engine} wrote {quoted(record.text)}, which is no token of the "
                "model here; load the model that it serves."
            )
        return (token,)
    if record.tokens is None:
        raise InputError(f"Engine {record.engine} told the ids of some answers only.")
    ids, last = list(record.tokens), max(record.tokens)
    refuse(
        (
            last >= pair.vocabulary,
            f"Engine {record.engine} wrote the token {last}, which the model here does not have; "
            "load the model that it serves.",
        )
    )
    if record.finished == "stop" and ids[-1] not in pair.end_tokens:
        ends = sorted(pair.end_tokens)
        refuse(
            (
                len(ends) != 1,
                f"Engine {record.engine} ended a text without saying with which token; give "
                "prefixes after which no text ends.",
            )
        )
        ids += ends
    return tuple(ids)
