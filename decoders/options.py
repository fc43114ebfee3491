"""The options of a call: drawing tokens (Sampling), and sharing passes and memory (Batching)."""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from transformers import LogitsProcessor

from decoders.engine.passes.padded import PADDINGS
from decoders.errors import InputError, allowed, flag, plain, quoted, whole
from decoders.penalties import TEXT_ALONE
from decoders.shapes import TokenId

LONGEST_BUDGET = 1_000_000
Message = Mapping[str, str]  # its role and its content
Prompt = str | Sequence[TokenId] | Sequence[Message]
Stop = str | Sequence[str] | Callable[[int, list[TokenId]], bool]


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn and when a text ends, in the keywords of `decoders.stream`.

    Attributes:
        penalties: True applies the settings of the target's generation config that depend on the
            text alone: repetition_penalty, no_repeat_ngram_size, bad_words_ids, suppress_tokens,
            begin_suppress_tokens. A list has processors of transformers for the first four instead.
            They change the logits of both models before anything else, and so the
            log-probabilities. (The beam search of transformers' `generate` changes
            log-probabilities, which are then no longer normalised.)
    """

    max_new_tokens: int = 64
    seed: int | Sequence[int] = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    top_n_sigma: float = 0.0
    temperature_last: bool = False
    stop: Stop = ()
    ignore_eos: bool = False
    end_tokens: Collection[TokenId] | None = None
    penalties: bool | Sequence[LogitsProcessor] = False

    def __post_init__(self) -> None:
        whole("max_new_tokens", self.max_new_tokens, LONGEST_BUDGET)
        flag("ignore_eos", self.ignore_eos)
        own = () if isinstance(plain(self.penalties), bool) else self.penalties
        if not isinstance(own, (list, tuple)) or not all(isinstance(p, TEXT_ALONE) for p in own):
            raise InputError(
                "penalties must be true, false or a list of logits processors of transformers that "
                f"need the text alone ({', '.join(p.__name__ for p in TEXT_ALONE)}), not "
                f"{quoted(self.penalties)}."
            )


@dataclass(frozen=True)
class Batching:
    """How the requests of a list share passes and memory, in the keywords of `decoders.stream`.

    Attributes:
        padding: "none"; or, for comparison, the padding of batches that are not packed (Ni et al.
            2024, EMS-SD, arXiv 2405.07542): "inputs", "kv" or "both", in static batches. The tokens
            are the same, the work is more.
    """

    max_batch: int | None = None
    prefill_chunk: int | None = None
    padding: str = "none"
    max_cache_bytes: int | None = None

    def __post_init__(self) -> None:
        for name, most in (
            ("max_batch", LONGEST_BUDGET),
            ("prefill_chunk", LONGEST_BUDGET),
            ("max_cache_bytes", sys.maxsize),
        ):
            if (value := getattr(self, name)) is not None:
                whole(name, value, most)
        allowed("padding", self.padding, choices=PADDINGS)
        if self.padding != "none" and self.max_cache_bytes is not None:
            raise InputError(
                "max_cache_bytes needs padding='none': the size of padded caches is not known "
                "beforehand."
            )
