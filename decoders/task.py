"""A task: everything that one call asks for, checked before anything starts."""

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel

from decoders.catalog import catalog
from decoders.engine.padding import PADDINGS
from decoders.engine.pair import ModelPair
from decoders.errors import InputError
from decoders.inputs import as_ids, as_prompts, as_seeds, as_stops, cancel_check, encode, stop_finder, whole
from decoders.penalties import TEXT_ALONE, on_host, processors
from decoders.settings import Method
from decoders.shapes import Penalties, TokenId
from decoders.warp import Warping

LONGEST_BUDGET = 1_000_000
Prompt = str | Sequence[TokenId]
Stop = str | Sequence[str] | Callable[[int, list[TokenId]], bool]


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn and when a text ends, in the keywords of `decoders.stream`."""

    max_new_tokens: int = 64
    seed: int | Sequence[int] = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    stop: Stop = ()
    ignore_eos: bool = False
    end_tokens: Collection[TokenId] | None = None
    penalties: bool | Sequence[LogitsProcessor] = False

    def __post_init__(self) -> None:
        whole("max_new_tokens", self.max_new_tokens, LONGEST_BUDGET)
        own = () if isinstance(self.penalties, bool) else self.penalties
        if not isinstance(own, Sequence) or not all(isinstance(p, TEXT_ALONE) for p in own):
            raise InputError(
                "penalties must be true, false or a list of logits processors of transformers that need the text alone "
                f"({', '.join(p.__name__ for p in TEXT_ALONE)}), not {self.penalties!r:.80}."
            )


@dataclass(frozen=True)
class Batching:
    """How the requests of a list share the passes and the memory, in the keywords of `decoders.stream`."""

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
        if self.padding not in PADDINGS:
            raise InputError(f"padding must be one of {', '.join(PADDINGS)}, not {self.padding!r}.")
        if self.padding != "none" and self.max_cache_bytes is not None:
            raise InputError("max_cache_bytes needs padding='none': the size of padded caches is not known beforehand.")


@dataclass(frozen=True)
class Task:
    """What a call asks for, as `Task.read` checked it.

    warping   what the decoder really uses, given the caller's;   penalties  what changes the logits of each prompt's texts;   most_rows  the most cache rows that each prompt can need
    """

    pair: ModelPair
    method: Method
    sampling: Sampling
    batching: Batching
    warping: Warping
    prompts: list[list[TokenId]]
    penalties: list[Penalties | None]
    seeds: list[int]
    stops: list[str]
    end_tokens: frozenset[TokenId]
    most_rows: list[int]
    cancelled: Callable[[], bool]

    @classmethod
    def read(
        cls,
        pair: ModelPair,
        prompt: Prompt | Sequence[Prompt],
        method: Method | str,
        sampling: Sampling,
        batching: Batching,
        cancel: Any = None,
    ) -> "Task":
        """Check everything that can be checked without running a model. Raises InputError, in one sentence that names the fix."""
        method = checked_method(pair, method)
        _packs(pair, method, batching)
        warping = method.warping(Warping(sampling.temperature, sampling.top_k, sampling.top_p))
        budget = int(sampling.max_new_tokens)
        prompts = [encode(p, pair.tokenizer, pair.vocabulary) for p in as_prompts(prompt)[0]]
        for ids in prompts:
            _fits(pair, method, len(ids), budget)
        method.refuse(pair.vocabulary, budget)
        if method.references and pair.tokenizer is None:
            raise InputError("Reference documents need a tokenizer; this pair has none.")
        rows = [method.most_rows(len(ids), budget) for ids in prompts]
        if batching.max_cache_bytes is not None:
            _fits_cache(rows, row_bytes(pair, method), batching.max_cache_bytes)
        seeds = as_seeds(sampling.seed, len(prompts))
        stops = [] if callable(sampling.stop) else as_stops(sampling.stop, pair.tokenizer)
        ends = pair.end_tokens if sampling.end_tokens is None else as_ids("end_tokens", sampling.end_tokens)
        ends = frozenset() if sampling.ignore_eos else ends
        penalties = [_penalties(sampling, pair.target, len(ids)) for ids in prompts]
        return cls(
            pair,
            method,
            sampling,
            batching,
            warping,
            prompts,
            penalties,
            seeds,
            stops,
            ends,
            rows,
            cancel_check(cancel),
        )

    def stops_of(self, request: int) -> Callable[[list[TokenId]], bool] | None:
        """What says whether the new tokens of a request end it: the caller's own function, or one that looks for the stop strings."""
        if callable(self.sampling.stop):
            return partial(self.sampling.stop, request)
        return stop_finder(self.pair.tokenizer, self.stops) if self.stops else None


def _penalties(sampling: Sampling, target: PreTrainedModel, prompt_length: int) -> Penalties | None:
    """What changes the logits of a request: what the target's generation config asks for, or the caller's own processors."""
    given = sampling.penalties
    if given is True:
        given = processors(target.generation_config, prompt_length)
    return cast(Penalties, LogitsProcessorList(map(on_host, given))) if given else None


def checked_method(pair: ModelPair, method: Method | str) -> Method:
    """The decoder, with its defaults if given by name. Raises InputError if this pair cannot run it."""
    if not isinstance(pair, ModelPair):
        raise InputError(f"The first argument is a ModelPair, as load_pair() returns, not {type(pair).__name__}.")
    if isinstance(method, str):
        method = catalog[method]()
    if not isinstance(method, Method):
        raise InputError(f'A decoder is one of the catalog with its settings, as catalog["greedy"](), not {method!r}.')
    if method.uses_draft and pair.draft is None:
        raise InputError(
            f"{method.name} needs a draft model, and there is none: load a target with a draft, or choose a decoder without one."
        )
    for role in roles(method):
        pair.packed[role].refuse_changes()
    return method


def _packs(pair: ModelPair, method: Method, batching: Batching) -> None:
    """Raise InputError for what only packed passes do, or only those of one tokenizer."""
    padded = batching.padding != "none"
    if not padded and batching.max_cache_bytes is None:
        return
    for role in roles(method):
        if (plain := pair.plain.get(role)) is not None:
            raise InputError(
                f"{'padding' if padded else 'max_cache_bytes'} is for packed passes, and the {role} model runs one request at a time, "
                f"because {plain.why}; leave it out, or load another pair."
            )
        packed: Any = pair.packed[role]
        if padded and any(packed.reaches):
            raise InputError(
                f"padding is for models whose layers all see the whole text, and some of the {role} model's have a window; leave it "
                "out, or load another pair."
            )
        if padded and packed.spread:
            raise InputError(f"padding is for models on one device, and the {role} model is on several; leave it out.")
        if padded and role == "draft" and not pair.one_tokenizer:
            raise InputError(
                "padding is for models with one tokenizer; leave it out, or load a draft of the target's family."
            )


def roles(method: Method) -> tuple[str, ...]:
    """The models that a decoder asks."""
    return ("target", "draft") if method.uses_draft else ("target",)


def row_bytes(pair: ModelPair, method: Method) -> int:
    """Bytes that one cache row takes in all models that a decoder asks."""
    return sum(pair.packed[role].row_bytes for role in roles(method))


def cache_need(pair: ModelPair, method: Method, prompt_tokens: int, max_new_tokens: int) -> int:
    """The most bytes of cache that a request can need, in all models it uses: the least `max_cache_bytes` that admits it."""
    return method.most_rows(prompt_tokens, max_new_tokens) * row_bytes(pair, method)


def _fits(pair: ModelPair, method: Method, prompt: int, budget: int) -> None:
    for role in roles(method):
        positions = pair.packed[role].positions
        if positions is not None and prompt + budget > positions:
            raise InputError(
                f"The prompt of {prompt} tokens and {budget} new ones exceed the {positions} positions of the "
                f"{role} model; shorten the prompt or max_new_tokens."
            )


def _fits_cache(most_rows: Sequence[int], size: int, limit: int) -> None:
    largest = max(range(len(most_rows)), key=lambda i: most_rows[i])
    if most_rows[largest] * size > limit:
        raise InputError(
            f"Prompt {largest + 1} can need {most_rows[largest] * size} bytes of cache and max_cache_bytes is {limit}; "
            "raise it, or shorten the prompt or max_new_tokens."
        )
