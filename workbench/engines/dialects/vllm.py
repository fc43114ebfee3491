"""vLLM: token ids both ways, and each step's counts if the server was started for them.

Its counts are those of `Speculation`: `observe` gets the sampled tokens less one as accepted, so
the token that the target adds is not among them. `mean_acceptance_length` counts it, and is not
read. A step is counted in full, even if the text ends within it.

Source:
    vLLM 0.32.0: fields of requests and chunks in `vllm/entrypoints/openai/completion/protocol.py`;
    `metrics.speculative_decoding`, sent with the usage if the server runs with
    `--per-request-spec-decode-metrics`, in `vllm/entrypoints/generate/base/protocol.py`; what they
    count in `vllm/v1/core/sched/scheduler.py` and `vllm/v1/metrics/stats.py`; the order of cut-offs
    in `vllm/v1/sample/sampler.py` (`sample`).
"""

from collections.abc import Iterable, Iterator
from typing import Any

from workbench.engines.record import (
    AnswerShape,
    Chunk,
    Count,
    Dialect,
    Event,
    Query,
    Speculation,
    completions,
    neutral,
    shaped,
)


class Speculating(AnswerShape):
    num_draft_tokens: Count
    num_accepted_draft_tokens: Count
    num_spec_steps: Count
    per_step_accepted: list[Count] | None = None
    per_step_drafted: list[Count] | None = None


class PerRequest(AnswerShape):
    speculative_decoding: Speculating | None = None


class WithMetrics(AnswerShape):
    metrics: PerRequest | None = None


def body(query: Query, model: str | None) -> dict[str, Any]:
    # Without these, the server would take top-k, top-p and penalties from the model's
    # generation config.
    own = {
        "top_k": query.warping.top_k,
        "min_p": query.warping.min_p,
        "repetition_penalty": 1.0,
        "return_token_ids": True,
    }
    usage = {"stream_options": {"include_usage": True}} if query.stream else {}
    return {**neutral(query, model), **own, **usage}


def speculation(event: Event) -> Speculation | None:
    metrics = shaped(WithMetrics, event).metrics
    counts = metrics.speculative_decoding if metrics else None
    if counts is None:
        return None
    steps = zip(counts.per_step_drafted or (), counts.per_step_accepted or (), strict=False)
    return Speculation(
        counts.num_draft_tokens,
        counts.num_accepted_draft_tokens,
        counts.num_spec_steps,
        tuple(steps),
    )


def chunks(events: Iterable[Event]) -> Iterator[Chunk]:
    return completions(events, speculation)


VLLM = Dialect(
    "vllm",
    body,
    chunks,
    takes_ids=True,
    owner="vllm",
    version=("/version", "version"),
    cuts=frozenset({"top_k", "top_p", "min_p"}),
    # min-p comes first; with top-k alone, the order makes no difference.
    apart=(("top_p", "min_p"),),
)
