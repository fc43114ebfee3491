"""The public calls: check everything that can be known beforehand, then let the loop run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from decoders.catalog import catalog
from decoders.engine.model import PADDINGS, Engine
from decoders.engine.pair import ModelPair
from decoders.errors import InputError, ModelError
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
    if not _is_batch(prompt):
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
    cancel: Any = None,
) -> Iterator[Event]:
    """The same as `generate`, as it happens: an Event for each round, and a last one with the Result for each request.

    prompt         text, a list of token ids, or a list of either
    seed           an int (request i of a list gets seed + i) or one int for each request
    stop           strings that end the text;   ignore_eos  go on behind the end-of-sequence token
    max_batch      requests in flight at most;   prefill_chunk  prompt tokens of a request in one pass at most
    padding        "none"; "inputs", "kv" or "both" pad as batches without packing must, in static batches, for comparison
                   (ems-sd.txt): the same tokens, more work
    cancel         a threading.Event, or a function that says True: ends every request within a round
    Input is checked here, at the call; closing the iterator early frees the cache. A request that fails ends with a Result that
    carries the error.
    """
    if isinstance(method, str):
        method = catalog[method]()
    if method.uses_draft and pair.draft is None:
        raise InputError(
            f"{method.name} needs a draft model; load one with load_pair(target, draft), or choose a decoder without."
        )
    warping = method.warping(Warping(temperature, top_k, top_p))
    _whole("max_new_tokens", max_new_tokens, LONGEST_BUDGET)
    for name, value in (("max_batch", max_batch), ("prefill_chunk", prefill_chunk)):
        if value is not None:
            _whole(name, value, LONGEST_BUDGET)
    if padding not in PADDINGS:
        raise InputError(f"padding must be one of {', '.join(PADDINGS)}, not {padding!r}.")
    prompts = list(prompt) if _is_batch(prompt) else [prompt]
    ids = [_encode(pair, p, method, max_new_tokens) for p in prompts]
    seeds = [seed + i for i in range(len(ids))] if isinstance(seed, int) else list(seed)
    if len(seeds) != len(ids):
        raise InputError(
            f"There are {len(ids)} prompts and {len(seeds)} seeds; give one int, or one seed for each prompt."
        )
    stops = [stop] if isinstance(stop, str) else list(stop)
    if not all(isinstance(s, str) and s for s in stops):
        raise InputError("Stop strings must be texts of at least one character.")
    if stops and pair.tokenizer is None:
        raise InputError("Stop strings need a tokenizer; this pair has none.")
    end_tokens = frozenset() if ignore_eos else pair.end_tokens
    finds_stop = _stop_finder(pair.tokenizer, stops) if stops else None
    requests = [
        Request(p, SeededSource(s), warping, max_new_tokens, end_tokens, finds_stop)
        for p, s in zip(ids, seeds, strict=True)
    ]
    jobs = [Job(i, r, method.decode(r)) for i, r in enumerate(requests)]
    roles = ("target", "draft") if method.uses_draft else ("target",)
    engines = {role: Engine(pair.packed[role], padding) for role in roles}
    control = {"max_batch": max_batch, "prefill_chunk": prefill_chunk, "static": padding != "none"}
    return _events(pair, jobs, stops, drive(jobs, engines, **control, cancelled=_cancel_check(cancel)))


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


def _is_batch(prompt: Any) -> bool:
    return not isinstance(prompt, str) and len(prompt) > 0 and not isinstance(prompt[0], int)


def _encode(pair: ModelPair, prompt: Prompt, method: Method, budget: int) -> list[TokenId]:
    if isinstance(prompt, str):
        if not prompt:
            raise InputError("The prompt is empty; give at least one character.")
        if pair.tokenizer is None:
            raise InputError("This pair has no tokenizer; give the prompt as a list of token ids.")
        ids = list(pair.tokenizer(prompt).input_ids)
    else:
        ids = [int(i) for i in prompt]
    if not ids:
        raise InputError("The prompt is empty; give at least one token.")
    for i in ids:
        if not 0 <= i < pair.vocabulary:
            raise InputError(f"Token id {i} is out of range; the vocabulary has ids 0 to {pair.vocabulary - 1}.")
    for role in ("target", "draft") if method.uses_draft else ("target",):
        positions = pair.packed[role].positions
        if positions is not None and len(ids) + budget > positions:
            raise InputError(
                f"The prompt of {len(ids)} tokens and {budget} new ones exceed the {positions} positions of the "
                f"{role} model; shorten the prompt or max_new_tokens."
            )
    return ids


def _whole(name: str, value: Any, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InputError(f"{name} must be a whole number from 1 to {most}, not {value!r}.")


def _stop_finder(tokenizer: Any, stops: Sequence[str]) -> Callable[[list[TokenId]], bool]:
    # A character is at most four byte-level tokens; the slack is for a tokenizer that drops a leading space.
    window = 4 * max(map(len, stops)) + 8

    def finds(tokens: list[TokenId]) -> bool:
        text = tokenizer.decode(tokens[-window:], clean_up_tokenization_spaces=False)
        return any(s in text for s in stops)

    return finds


def _cancel_check(cancel: Any) -> Callable[[], bool]:
    if cancel is None:
        return lambda: False
    return cancel.is_set if hasattr(cancel, "is_set") else cancel
