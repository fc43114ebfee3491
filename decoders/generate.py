"""The public calls: check everything that can be known beforehand, then let the loop run."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from decoders.catalog import catalog
from decoders.engine.model import PADDINGS, Engine
from decoders.engine.pair import ModelPair
from decoders.errors import InputError, ModelError
from decoders.inputs import as_prompts, as_seeds, as_stops, cancel_check, encode, encode_references, stop_finder, whole
from decoders.loop import Job, drive
from decoders.metrics import Metrics, measure
from decoders.request import Request
from decoders.sampling import SeededSource
from decoders.settings import Method
from decoders.shapes import TokenId
from decoders.trace import Round, Trial
from decoders.warp import Warping

LONGEST_BUDGET = 1_000_000
Prompt = str | Sequence[TokenId]


@dataclass(frozen=True)
class Result:
    """What came of one prompt.

    text, tokens   the output without the prompt; an end-of-sequence token is in `tokens` and not in `text`, a stop string is not in
                   `text` though the tokens that completed it are in `tokens`
    trials         for each token the trial that produced it: fate, round, p, q, u, log_p, alternatives
    rounds         everything the decoder tried, round by round;  finished  why it ended
    error          why this request of a list failed; the other fields then hold what there was until then
    """

    text: str
    tokens: list[TokenId]
    trials: list[Trial]
    rounds: list[Round]
    metrics: Metrics
    prompt_tokens: list[TokenId]
    finished: str | None
    error: ModelError | None = None


@dataclass(frozen=True)
class Event:
    """One round of one request as it happens: of its output so far the first `keep` tokens stand and `append` follows.

    provisional    a later round may take it back (beams);   result  set in the last event of the request, whose round is None
    """

    request: int
    round: Round | None
    keep: int
    append: list[TokenId]
    provisional: bool
    result: Result | None = None


def generate(
    pair: ModelPair, prompt: Prompt | Sequence[Prompt], method: Method | str, **options: Any
) -> Result | list[Result]:
    """Decode a prompt, or a list of prompts as one batch; takes the options of `stream`.

    Raises InputError before any work for input that cannot be used, ModelError where a lone request's model fails; in a list the
    failed request carries its `error` and the others are whole.
    """
    results = {
        event.request: event.result for event in stream(pair, prompt, method, **options) if event.result is not None
    }
    if not as_prompts(prompt)[1]:
        if results[0].error is not None:
            raise results[0].error
        return results[0]
    return [results[i] for i in range(len(results))]


def stream(
    pair: ModelPair,
    prompt: Prompt | Sequence[Prompt],
    method: Method | str,
    *,
    max_new_tokens: int = 64,
    seed: int | Sequence[int] = 0,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    stop: str | Sequence[str] = (),
    ignore_eos: bool = False,
    max_batch: int | None = None,
    prefill_chunk: int | None = None,
    padding: str = "none",
    max_cache_bytes: int | None = None,
    cancel: Any = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Event]:
    """The same as `generate`, as it happens: an Event for each round, and a last one with the Result for each request.

    prompt         text, a list of token ids, or a list of either
    seed           an int (request i of a list gets seed + i) or one int for each request
    stop           strings that end the text;   ignore_eos  go on behind the end-of-sequence token
    max_batch      requests in flight at most;   prefill_chunk  prompt tokens of a request in one pass at most
    padding        "none"; "inputs", "kv" or "both" pad as batches without packing must, in static batches, for comparison
                   (ems-sd.txt): the same tokens, more work
    max_cache_bytes   memory of all caches at most: a request waits until what it can need at most fits in
    cancel         a threading.Event, or a function that says True: ends every request within a round
    clock          what tells the seconds; one that stops while the caller holds an event leaves the caller's own work out of them
    Input is checked here, at the call; closing the iterator early frees the cache. A request that fails ends with a Result that
    carries the error.
    """
    if not isinstance(pair, ModelPair):
        raise InputError(f"The first argument is a ModelPair, as load_pair() returns, not {type(pair).__name__}.")
    if isinstance(method, str):
        method = catalog[method]()
    if not isinstance(method, Method):
        raise InputError(f'A decoder is one of the catalog with its settings, as catalog["greedy"](), not {method!r}.')
    if method.uses_draft and pair.draft is None:
        raise InputError(
            f"{method.name} needs a draft model; load one with load_pair(target, draft), or choose a decoder without."
        )
    warping = method.warping(Warping(temperature, top_k, top_p))
    budget = whole("max_new_tokens", max_new_tokens, LONGEST_BUDGET)
    for name, value in (("max_batch", max_batch), ("prefill_chunk", prefill_chunk)):
        if value is not None:
            whole(name, value, LONGEST_BUDGET)
    if padding not in PADDINGS:
        raise InputError(f"padding must be one of {', '.join(PADDINGS)}, not {padding!r}.")
    prompts = [encode(p, pair.tokenizer, pair.vocabulary) for p in as_prompts(prompt)[0]]
    roles = _roles(method)
    for ids in prompts:
        _fits(pair, roles, len(ids), budget)
    seeds = as_seeds(seed, len(prompts))
    stops = as_stops(stop, pair.tokenizer)
    references = encode_references(method.references, pair.tokenizer)
    finds_stop = stop_finder(pair.tokenizer, stops) if stops else None
    end_tokens = frozenset() if ignore_eos else pair.end_tokens
    requests = [
        Request(ids, SeededSource(s), warping, budget, end_tokens, finds_stop, clock, pair.vocabulary, references)
        for ids, s in zip(prompts, seeds, strict=True)
    ]
    most = [method.most_rows(len(r.tree.tokens), budget) for r in requests]
    if max_cache_bytes is None:
        # A chain and its draft fit in this; a long text or many beams move to a larger stretch now and then.
        most_rows, reserved = None, [len(r.tree.tokens) + min(budget, 512) + 16 for r in requests]
    else:
        most_rows, reserved = _rows_within(pair, roles, max_cache_bytes, padding, most), most
    jobs = [Job(i, r, method.decode(r), rows) for i, (r, rows) in enumerate(zip(requests, reserved, strict=True))]
    at_once = sum(sorted(reserved)[-(max_batch or len(reserved)) :])
    engines = {role: Engine(pair.packed[role], padding, at_once, most_rows) for role in roles}
    control = {"max_batch": max_batch, "prefill_chunk": prefill_chunk, "static": padding != "none"}
    return _events(pair, jobs, stops, drive(jobs, engines, **control, cancelled=cancel_check(cancel)))


def _events(
    pair: ModelPair, jobs: Sequence[Job], stops: Sequence[str], driven: Iterator[tuple[Job, Round | None]]
) -> Iterator[Event]:
    for job, entry in driven:
        if entry is not None:
            yield Event(job.index, entry, entry.keep, entry.tokens, entry.provisional)
        else:
            yield Event(
                job.index, None, job.request.tree.new_length(job.request.answer), [], False, _result(pair, job, stops)
            )


def _result(pair: ModelPair, job: Job, stops: Sequence[str]) -> Result:
    request = job.request
    path = request.tree.lineage(request.answer, request.tree.prompt_length)
    tokens = [request.tree.tokens[n] for n in path]
    shown = tokens[:-1] if tokens and tokens[-1] in request.end_tokens else tokens
    text = (
        pair.tokenizer.decode(shown, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        if pair.tokenizer
        else ""
    )
    for s in stops:
        text = text.split(s, 1)[0]
    trials = [request.kept[n] for n in path]
    metrics = measure(request, request.rounds, request.seconds)
    return Result(
        text,
        tokens,
        trials,
        request.rounds,
        metrics,
        request.tree.tokens[: request.tree.prompt_length],
        request.finished,
        job.error,
    )


def cache_need(pair: ModelPair, method: Method, prompt_tokens: int, max_new_tokens: int) -> int:
    """Bytes of cache that a request can need at most, in all models it uses: the least `max_cache_bytes` that admits it."""
    return method.most_rows(prompt_tokens, max_new_tokens) * _row_bytes(pair, _roles(method))


def _roles(method: Method) -> tuple[str, ...]:
    return ("target", "draft") if method.uses_draft else ("target",)


def _row_bytes(pair: ModelPair, roles: Sequence[str]) -> int:
    return sum(pair.packed[role].row_bytes for role in roles)


def _rows_within(pair: ModelPair, roles: Sequence[str], limit: Any, padding: str, most: Sequence[int]) -> int:
    """The cache rows of each model that `limit` bytes hold, no more than all requests together can need."""
    whole("max_cache_bytes", limit, sys.maxsize)
    if padding != "none":
        raise InputError("max_cache_bytes goes with padding='none'; padded caches have no bound of their own.")
    row_bytes = _row_bytes(pair, roles)
    largest = max(range(len(most)), key=lambda i: most[i])
    if most[largest] * row_bytes > limit:
        raise InputError(
            f"Prompt {largest + 1} can need {most[largest] * row_bytes} bytes of cache and max_cache_bytes is {limit}; "
            "raise it, or shorten the prompt or max_new_tokens."
        )
    return min(limit // row_bytes, sum(most))


def _fits(pair: ModelPair, roles: Sequence[str], prompt: int, budget: int) -> None:
    for role in roles:
        positions = pair.packed[role].positions
        if positions is not None and prompt + budget > positions:
            raise InputError(
                f"The prompt of {prompt} tokens and {budget} new ones exceed the {positions} positions of the "
                f"{role} model; shorten the prompt or max_new_tokens."
            )
