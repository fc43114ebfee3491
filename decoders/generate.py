"""The public calls: `check` input, `stream` a decoding as it happens, or `generate` it whole.

A Task is everything that one call asks for, checked before anything starts.
"""

import sys
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain
from typing import Any, cast, overload

import torch
from transformers import LogitsProcessor, LogitsProcessorList

from decoders.devices import device_of
from decoders.distribution import Warping
from decoders.engine.loading.pair import ModelPair
from decoders.engine.models.packed import PackedModel
from decoders.engine.passes import PADDINGS, PaddedPasses
from decoders.engine.protocols import Passes
from decoders.errors import InputError, allowed, first_line, flag, plain, quoted, refuse, whole
from decoders.inputs import (
    as_ids,
    as_prompts,
    as_seeds,
    as_stops,
    cancel_check,
    decoded,
    encode_all,
    stop_finder,
)  # fmt: skip
from decoders.loop import Loop, Turn
from decoders.methods.catalog import as_method
from decoders.penalties import TEXT_ALONE, applied, on_host, processors
from decoders.request import Request, SeededSource
from decoders.settings import Method
from decoders.shapes import Penalties, TokenId
from decoders.trace import Event, Ledger, Result, measure

LONGEST_BUDGET = 1_000_000
# The most prompt tokens of a pass on a CPU if the caller names none: whoever stops a request waits
# for it, some tenths of a second.
PROMPT_PART = 256
# A text, its tokens, or messages with their roles and contents.
Prompt = str | Sequence[TokenId] | Sequence[Mapping[str, str]]
Stop = str | Sequence[str] | Callable[[int, list[TokenId]], bool]


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn and when a text ends, in the keywords of `decoders.stream`.

    Attributes:
        warping: the fields of a Warping, which are keywords each
        penalties: True applies the settings of the target's generation config that depend on the
            text alone: repetition_penalty, no_repeat_ngram_size, bad_words_ids, suppress_tokens,
            begin_suppress_tokens. A list has processors of transformers for the first four instead.
            They change the logits of both models before anything else, and so the
            log-probabilities. (The beam search of transformers' `generate` changes
            log-probabilities, which are then no longer normalised.)
    """

    max_new_tokens: int = 64
    seed: int | Sequence[int] = 0
    warping: Warping = field(default_factory=Warping)
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


@dataclass(frozen=True)
class Task:
    """A call that `Task.read` has checked.

    Attributes:
        sampling: the caller's options for drawing tokens
        batching: the caller's options for sharing passes
        requests: one for each prompt
        stops: the strings that end a text
        most_rows: for each prompt, the most cache rows that it can need
        cancelled: says whether the caller has cancelled the call, if the caller can
    """

    pair: ModelPair
    method: Method
    sampling: Sampling
    batching: Batching
    requests: list[Request]
    stops: list[str]
    most_rows: list[int]
    cancelled: Callable[[], bool] | None

    @classmethod
    def read(
        cls,
        pair: ModelPair,
        prompt: Prompt | Sequence[Prompt],
        method: Method | str,
        sampling: Sampling,
        batching: Batching,
        cancel: Any = None,
        clock: Any = time.perf_counter,
    ) -> "Task":
        """Check a call; runs no model. Raises InputError, in one sentence that names the fix."""
        method = checked_method(pair, method)
        _packs(pair, method, batching)
        budget = int(sampling.max_new_tokens)
        given, _ = as_prompts(prompt)
        prompts = encode_all(given, pair.tokenizer, pair.vocabulary, pair.bos)
        for ids in prompts:
            _fits(pair, method, len(ids), budget)
        method.refuse(pair.vocabulary, budget)
        references = _references(pair, method)
        rows = [method.most_rows(len(ids), budget) for ids in prompts]
        if (limit := batching.max_cache_bytes) is not None:
            need = max(rows) * row_bytes(pair, method)
            if need > limit:
                raise InputError(
                    f"Prompt {rows.index(max(rows)) + 1} can need {need} bytes of cache and "
                    f"max_cache_bytes is {limit}; raise it, or shorten the prompt or "
                    "max_new_tokens."
                )
        seeds, stop = as_seeds(sampling.seed, len(prompts)), sampling.stop
        stops = [] if callable(stop) else as_stops(stop, pair.tokenizer)
        finder = stop_finder(pair.tokenizer, stops) if stops else None
        ends = (
            pair.end_tokens
            if sampling.end_tokens is None
            else as_ids("end_tokens", sampling.end_tokens)
        )
        ends = frozenset() if sampling.ignore_eos else ends
        if not callable(clock):
            raise InputError(f"clock must be a function that returns seconds, not {quoted(clock)}.")
        shared: dict[Any, Any] = {}
        requests = [
            Request(
                ids, source=SeededSource(seed), warping=method.warping(sampling.warping),
                budget=budget, end_tokens=ends, vocabulary=pair.vocabulary, references=references,
                stops=partial(stop, number) if callable(stop) else finder, ledger=Ledger(clock),
                penalties=penalties_of(sampling, pair, ids), shared=shared,
            )
            for number, (ids, seed) in enumerate(zip(prompts, seeds, strict=True))
        ]  # fmt: skip
        return cls(pair, method, sampling, batching, requests, stops, rows, cancel_check(cancel))


def _references(pair: ModelPair, method: Method) -> list[list[TokenId]]:
    if method.references and pair.tokenizer is None:
        raise InputError("Reference documents need a tokenizer; this pair has none.")
    lists = [
        list(pair.tokenizer(text, add_special_tokens=False).input_ids) for text in method.references
    ]
    if (highest := max(chain(*lists), default=0)) >= pair.vocabulary:
        raise InputError(
            f"A reference document has the token id {highest}, and the vocabulary of the model ids "
            f"0 to {pair.vocabulary - 1}; resize its embeddings, or leave the document out."
        )
    return lists


def penalties_of(sampling: Sampling, pair: ModelPair, prompt: list[TokenId]) -> Penalties | None:
    """The changes to a request's logits, or None.

    They are what the target's generation config asks for, or the caller's own processors. They are
    tried on the prompt, since some find out only then that they name tokens outside of the
    vocabulary. Raises InputError if they cannot be applied.
    """
    chosen = plain(sampling.penalties)
    if chosen is True:
        chosen = processors(pair.generation_config, len(prompt))
    if not chosen:
        return None
    penalties = cast(Penalties, LogitsProcessorList(map(on_host, chosen)))
    try:
        applied(penalties, prompt, torch.zeros(pair.vocabulary))
    except (ValueError, TypeError, IndexError, RuntimeError) as error:
        raise InputError(
            f"The penalties cannot be applied ({first_line(error)}); mend them or leave them out."
        ) from None
    return penalties


def checked_pair(pair: ModelPair) -> ModelPair:
    if not isinstance(pair, ModelPair):
        raise InputError(
            f"The first argument is a ModelPair, as load_pair() returns, not {type(pair).__name__}."
        )
    return pair


def checked_method(pair: ModelPair, method: Method | str) -> Method:
    """Return the decoder, with its defaults if it is given by name.

    Raises:
        InputError: if this pair cannot run it
    """
    checked_pair(pair)
    method = as_method(method)
    if method.uses_draft and pair.draft is None:
        raise InputError(
            f"{method.name} needs a draft model, and there is none: load a target with a draft, or "
            "choose a decoder without one."
        )
    if method.uses_head and pair.head is None:
        raise InputError(
            f"{method.name} needs a head, and there is none: load the target with one."
        )
    pair.follow(roles(method))
    return method


def _packs(pair: ModelPair, method: Method, batching: Batching) -> None:
    """Raise InputError if the pair cannot run what needs packed passes or a single tokenizer."""
    padded = batching.padding != "none"
    if not padded and batching.max_cache_bytes is None:
        return
    for role in roles(method):
        if (plain := pair.plain.get(role)) is not None:
            raise InputError(
                f"{'padding' if padded else 'max_cache_bytes'} is for packed passes, and the "
                f"{role} model runs one request at a time, because {plain.why}; leave it out, or "
                "load another pair."
            )
        packed: Any = pair.packed[role]
        translated = role == "draft" and not pair.one_tokenizer
        whose = {
            f"whose layers all see the whole text, and some of the {role} model's have a window; "
            "leave it out, or load another pair.": any(packed.reaches),
            f"on one device, and the {role} model is on several; leave it out.": packed.spread,
            "with one tokenizer; leave it out, or load a draft of the target's family.": translated,
        }
        refuse(*((padded and has, f"padding is for models {why}") for why, has in whose.items()))


def roles(method: Method) -> tuple[str, ...]:
    return ("target", *["draft"] * method.uses_draft, *["head"] * method.uses_head)


def row_bytes(pair: ModelPair, method: Method) -> int:
    """Bytes of one cache row in all models that a decoder asks."""
    return sum(pair.packed[role].row_bytes for role in roles(method))


def cache_need(
    pair: ModelPair, method: Method | str, prompt_tokens: int, max_new_tokens: int
) -> int:
    """The most bytes of cache that a request can need, in all models that it uses.

    It is the least `max_cache_bytes` that admits the request.

    Args:
        method: a decoder, or its name
        prompt_tokens: the number of prompt tokens
        max_new_tokens: the most new tokens

    Raises:
        InputError: if the pair cannot run the decoder, or a number is not valid
    """
    method = checked_method(pair, method)
    prompt_tokens = whole("prompt_tokens", prompt_tokens, sys.maxsize)
    max_new_tokens = whole("max_new_tokens", max_new_tokens, LONGEST_BUDGET)
    return method.most_rows(prompt_tokens, max_new_tokens) * row_bytes(pair, method)


def _fits(pair: ModelPair, method: Method, prompt: int, budget: int) -> None:
    for role in roles(method):
        positions = pair.packed[role].positions
        if positions is not None and prompt + budget > positions:
            raise InputError(
                f"The prompt of {prompt} tokens and {budget} new ones exceed the {positions} "
                f"positions of the {role} model; shorten the prompt or max_new_tokens."
            )


@overload
def generate(pair: ModelPair, prompt: Prompt, method: Method | str, **options: Any) -> Result: ...
@overload
def generate(
    pair: ModelPair, prompt: Sequence[Prompt], method: Method | str, **options: Any
) -> list[Result]: ...
def generate(
    pair: ModelPair, prompt: Prompt | Sequence[Prompt], method: Method | str, **options: Any
) -> Result | list[Result]:
    """Decode a prompt, or a list of prompts as one batch.

    Args:
        prompt: see `stream`
        method: a decoder, or its name
        options: the other options of `stream`

    Returns:
        a Result, or a list of them for a list of prompts

    Raises:
        InputError: for input that cannot be used, before any work
        ModelError: if the model fails on a single prompt. In a list, the failed request carries its
            `error` and the others are complete.
    """
    results = {
        event.request: event.result
        for event in stream(pair, prompt, method, **options)
        if event.result is not None
    }
    if not as_prompts(prompt)[1]:
        if results[0].error is not None:
            raise results[0].error
        return results[0]
    return [results[i] for i in range(len(results))]


def check(
    pair: ModelPair, prompt: Prompt | Sequence[Prompt], method: Method | str, **options: Any
) -> None:
    """Raise the InputError that `stream` would raise for the same arguments.

    Nothing is started: no decoder, no engine, no model.

    Args:
        prompt: see `stream`
        method: a decoder, or its name
        options: the other options of `stream`

    Raises:
        InputError: for input that cannot be used
    """
    cancel, clock = options.pop("cancel", None), options.pop("clock", time.perf_counter)
    warping, own = (
        {f.name: options.pop(f.name) for f in fields(each) if f.name in options}
        for each in (Warping, Sampling)
    )
    sampling = Sampling(**own, warping=Warping(**warping))
    Task.read(pair, prompt, method, sampling, Batching(**options), cancel, clock)


def stream(
    pair: ModelPair, prompt: Prompt | Sequence[Prompt], method: Method | str, *,
    max_new_tokens: int = Sampling.max_new_tokens, seed: int | Sequence[int] = Sampling.seed,
    stop: Stop = Sampling.stop, ignore_eos: bool = Sampling.ignore_eos,
    end_tokens: Collection[TokenId] | None = Sampling.end_tokens,
    penalties: bool | Sequence[LogitsProcessor] = Sampling.penalties,
    max_batch: int | None = Batching.max_batch, prefill_chunk: int | None = Batching.prefill_chunk,
    padding: str = Batching.padding, max_cache_bytes: int | None = Batching.max_cache_bytes,
    cancel: Any = None, clock: Callable[[], float] = time.perf_counter,
    **warping: Any,
) -> Generator[Event, None, None]:  # fmt: skip
    """Decode a prompt, or a list of prompts as one batch.

    Input is checked at the call, before anything runs (`check` does only that). Closing the
    iterator early frees the cache; with CUDA graphs the model keeps its memory for the next run. A
    request that fails ends with a Result that carries the error.

    Args:
        prompt: text, a list of token ids, or a list of messages with "role" and "content", which
            the tokenizer's chat template renders up to the model's answer; or a list of such
            prompts, of any kind. A last message of the assistant is the beginning of that answer.
            A text is read as it is.
        method: a decoder, or its name
        max_new_tokens: the most new tokens of each request
        seed: an int (request i of a list gets seed + i), or a list of one int per request
        stop: strings that end the text, such as the name of a special token; or a function of the
            request's number and its new tokens, called after every token, that returns whether they
            end it
        ignore_eos: continue after the end-of-sequence token
        end_tokens: the ids that end a text; by default `pair.end_tokens`
        penalties: True for those of the target's generation config, or a list: see `Sampling`
        max_batch: the most requests in flight
        prefill_chunk: the most prompt tokens of a request in one pass; by default 256 on a CPU, so
            that a cancellation is heard, and all of them on a GPU
        padding: "none"; or, for comparison, "inputs", "kv" or "both": see `Batching`
        max_cache_bytes: the most memory of all caches; a request waits until its worst case fits
        cancel: a threading.Event, or a function that returns True to end all before the next call
            of a model
        clock: returns seconds; one that stops while the caller holds an event leaves its work out
        warping: `temperature`, `top_k`, `top_p`, `min_p`, `top_n_sigma` and `temperature_last`, see
            `Warping`

    Yields:
        an Event for each round, and a last one with the Result of each request

    Raises:
        InputError: for input that cannot be used
    """
    sampling = Sampling(
        max_new_tokens, seed, Warping(**warping), stop, ignore_eos, end_tokens, penalties
    )
    batching = Batching(max_batch, prefill_chunk, padding, max_cache_bytes)
    task = Task.read(pair, prompt, method, sampling, batching, cancel, clock)
    return _events(task, *prepare(task))


def prepare(task: Task) -> tuple[list[Turn], Mapping[str, Passes]]:
    """Make what the loop drives.

    Returns:
        a turn for each prompt, and for each model an engine with as many cache rows as the turns
            need together
    """
    pair, method = task.pair, task.method
    if task.batching.max_cache_bytes is None:
        # Enough for one path and its drafts; long texts and many beams move to a larger stretch
        # from time to time.
        spare = 16 + min(method.branches[1], 512)
        reserved = [r.tree.prompt_length + min(r.budget, 512) + spare for r in task.requests]
        most_rows = None
    else:
        reserved = task.most_rows
        most_rows = min(task.batching.max_cache_bytes // row_bytes(pair, method), sum(reserved))
    turns = [
        Turn(number, request, method.decode(request), rows, roles(method))
        for number, (request, rows) in enumerate(zip(task.requests, reserved, strict=True))
    ]
    at_once = sum(sorted(reserved)[-(task.batching.max_batch or len(reserved)) :])
    packed, padding = {role: pair.packed[role] for role in roles(method)}, task.batching.padding
    if padding != "none":
        return turns, {
            role: PaddedPasses(m, padding, at_once)
            if isinstance(m, PackedModel)
            else m.engine(at_once)  # a head
            for role, m in packed.items()
        }
    return turns, {role: model.engine(at_once, most_rows) for role, model in packed.items()}


def _events(
    task: Task, turns: Sequence[Turn], engines: Mapping[str, Passes]
) -> Generator[Event, None, None]:
    batching, on_host = task.batching, device_of(task.pair.packed["target"].device).on_host
    static, part = batching.padding != "none", batching.prefill_chunk
    # Padded passes take a prompt whole: their caches are aligned once each request has begun.
    if part is None and on_host and not static:
        part = PROMPT_PART
    # The end of the block gives back all cache rows, even if the generator is closed.
    with Loop(engines, max_batch=batching.max_batch, prefill_chunk=part, static=static) as loop:
        for turn in turns:
            loop.add(turn)
        while loop.turns:
            stopped = loop.turns if task.cancelled and task.cancelled() else []
            for turn in stopped:
                loop.cancel(turn)
            for turn, entry in [(turn, None) for turn in stopped] or loop.step():
                if entry is not None:
                    yield Event(turn.index, entry, entry.keep, entry.tokens, entry.provisional)
                else:
                    length = turn.request.tree.new_length(turn.request.answer)
                    yield Event(turn.index, None, length, [], False, _result(task, turn))


def _result(task: Task, turn: Turn) -> Result:
    request, tokenizer = turn.request, task.pair.tokenizer
    path = request.tree.lineage(request.answer, request.tree.prompt_length)
    tokens = [request.tree.tokens[n] for n in path]
    shown = tokens[:-1] if tokens and tokens[-1] in request.end_tokens else tokens
    text = decoded(tokenizer, shown) if tokenizer else ""
    for s in task.stops:
        text = text.split(s, 1)[0]
    trials = [request.trials[n] for n in path]
    return Result(
        text,
        tokens,
        trials,
        request.rounds,
        measure(trials, request.rounds, request.ledger, request.ledger.seconds),
        request.tree.tokens[: request.tree.prompt_length],
        request.finished,
        turn.error,
    )
