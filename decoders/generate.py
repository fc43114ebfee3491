"""The public calls: `check` input, `stream` a decoding as it happens, or `generate` it whole."""

import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import fields
from typing import Any, overload

from transformers import LogitsProcessor

from decoders.engine.loading.pair import ModelPair
from decoders.engine.models.packed import PackedModel
from decoders.engine.passes.padded import PaddedPasses
from decoders.engine.protocols import Passes
from decoders.inputs import decoded
from decoders.loop import Turn, drive
from decoders.prompts import as_prompts
from decoders.randomness import SeededSource
from decoders.request import Request
from decoders.result import Event, Result, measure
from decoders.settings import Method
from decoders.shapes import TokenId
from decoders.task import Batching, Prompt, Sampling, Stop, Task, roles, row_bytes
from decoders.trace import Ledger


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
        pair: the models
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
        pair: the models
        prompt: see `stream`
        method: a decoder, or its name
        options: the other options of `stream`

    Raises:
        InputError: for input that cannot be used
    """
    cancel, clock = options.pop("cancel", None), options.pop("clock", time.perf_counter)
    names = {field.name for field in fields(Sampling)} & options.keys()
    sampling = Sampling(**{name: options.pop(name) for name in names})
    Task.read(pair, prompt, method, sampling, Batching(**options), cancel, clock)


def stream(
    pair: ModelPair, prompt: Prompt | Sequence[Prompt], method: Method | str, *,
    max_new_tokens: int = Sampling.max_new_tokens, seed: int | Sequence[int] = Sampling.seed,
    temperature: float = Sampling.temperature, top_k: int = Sampling.top_k,
    top_p: float = Sampling.top_p, min_p: float = Sampling.min_p,
    top_n_sigma: float = Sampling.top_n_sigma,
    temperature_last: bool = Sampling.temperature_last, stop: Stop = Sampling.stop,
    ignore_eos: bool = Sampling.ignore_eos,
    end_tokens: Collection[TokenId] | None = Sampling.end_tokens,
    penalties: bool | Sequence[LogitsProcessor] = Sampling.penalties,
    max_batch: int | None = Batching.max_batch, prefill_chunk: int | None = Batching.prefill_chunk,
    padding: str = Batching.padding, max_cache_bytes: int | None = Batching.max_cache_bytes,
    cancel: Any = None, clock: Callable[[], float] = time.perf_counter,
) -> Generator[Event, None, None]:  # fmt: skip
    """Decode a prompt, or a list of prompts as one batch.

    Input is checked at the call, before anything runs (`check` does only that). Closing the
    iterator early frees the cache; with CUDA graphs the model keeps its memory for the next run. A
    request that fails ends with a Result that carries the error.

    Args:
        pair: the models
        prompt: text, a list of token ids, or a list of messages with "role" and "content", which
            the tokenizer's chat template renders up to the model's answer; or a list of such
            prompts, of any kind. A last message of the assistant is the beginning of that answer.
            A text is read as it is.
        method: a decoder, or its name
        max_new_tokens: the most new tokens of each request
        seed: an int (request i of a list gets seed + i), or a list of one int per request
        temperature: see `Warping`, as for `top_k`, `top_p`, `min_p`, `top_n_sigma` and
            `temperature_last`
        stop: strings that end the text, such as the name of a special token; or a function of the
            request's number and its new tokens, called after every token, that returns whether they
            end it
        ignore_eos: continue after the end-of-sequence token
        end_tokens: the ids that end a text; by default `pair.end_tokens`
        penalties: True for those of the target's generation config, or a list: see `Sampling`
        max_batch: the most requests in flight
        prefill_chunk: the most prompt tokens of a request in one pass
        padding: "none"; or, for comparison, "inputs", "kv" or "both": see `Batching`
        max_cache_bytes: the most memory of all caches; a request waits until its worst case fits
        cancel: a threading.Event, or a function that returns True to end all before the next call
            of a model
        clock: returns seconds; one that stops while the caller holds an event leaves its work out

    Yields:
        an Event for each round, and a last one with the Result of each request

    Raises:
        InputError: for input that cannot be used
    """
    sampling = Sampling(
        max_new_tokens,
        seed,
        temperature,
        top_k,
        top_p,
        min_p,
        top_n_sigma,
        temperature_last,
        stop,
        ignore_eos,
        end_tokens,
        penalties,
    )
    batching = Batching(max_batch, prefill_chunk, padding, max_cache_bytes)
    task = Task.read(pair, prompt, method, sampling, batching, cancel, clock)
    return _events(task, *prepare(task, clock))


def prepare(task: Task, clock: Callable[[], float]) -> tuple[list[Turn], Mapping[str, Passes]]:
    """Make what the loop drives.

    Args:
        task: the checked call
        clock: returns seconds

    Returns:
        a turn for each prompt, and for each model an engine with as many cache rows as the turns
            need together
    """
    pair, method, budget = task.pair, task.method, int(task.sampling.max_new_tokens)
    references = [
        list(pair.tokenizer(text, add_special_tokens=False).input_ids) for text in method.references
    ]
    if task.batching.max_cache_bytes is None:
        # Enough for one path and its drafts; long texts and many beams move to a larger stretch
        # from time to time.
        spare = 16 + min(method.branches[1], 512)
        most_rows, reserved = None, [len(ids) + min(budget, 512) + spare for ids in task.prompts]
    else:
        reserved = task.most_rows
        most_rows = min(task.batching.max_cache_bytes // row_bytes(pair, method), sum(reserved))
    turns: list[Turn] = []
    shared: dict[Any, Any] = {}
    for ids, seed, rows in zip(task.prompts, task.seeds, reserved, strict=True):
        request = Request(
            ids, source=SeededSource(seed), warping=task.warping, budget=budget,
            end_tokens=task.end_tokens, stops=task.stops_of(len(turns)), vocabulary=pair.vocabulary,
            references=references, ledger=Ledger(clock), penalties=task.penalties[len(turns)],
            shared=shared,
        )  # fmt: skip
        turns.append(Turn(len(turns), request, method.decode(request), rows, roles(method)))
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
    happened = drive(
        turns,
        engines,
        max_batch=task.batching.max_batch,
        prefill_chunk=task.batching.prefill_chunk,
        static=task.batching.padding != "none",
        cancelled=task.cancelled,
    )
    # In Python 3.12.0 to 3.12.3 a generator that is closed keeps its locals (gh-118272), and so the
    # loop its rows.
    with closing(happened):
        for turn, entry in happened:
            if entry is not None:
                yield Event(turn.index, entry, entry.keep, entry.tokens, entry.provisional)
            else:
                kept = turn.request.tree.new_length(turn.request.answer)
                yield Event(turn.index, None, kept, [], False, _result(task, turn))


def _result(task: Task, turn: Turn) -> Result:
    request, tokenizer = turn.request, task.pair.tokenizer
    path = request.tree.lineage(request.answer, request.tree.prompt_length)
    tokens = [request.tree.tokens[n] for n in path]
    shown = tokens[:-1] if tokens and tokens[-1] in request.end_tokens else tokens
    text = decoded(tokenizer, shown) if tokenizer else ""
    for s in task.stops:
        text = text.split(s, 1)[0]
    return Result(
        text,
        tokens,
        [request.kept[n] for n in path],
        request.rounds,
        measure(request, request.rounds, request.ledger.seconds),
        request.tree.tokens[: request.tree.prompt_length],
        request.finished,
        turn.error,
    )
