"""How each engine is asked, and what its answers count: its `Dialect`, and its name at the end."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import AliasChoices, Field

from workbench.engines.record import (
    OTHER,
    AnswerShape,
    Chunk,
    Count,
    Dialect,
    Event,
    Ids,
    Query,
    Speculation,
    completions,
    is_completion,
    neutral,
    refused,
    shaped,
)

# ---- vLLM


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


def vllm_body(query: Query, model: str | None) -> dict[str, Any]:
    """vLLM: token ids both ways, and each step's counts if the server was started for them.

    Its counts are those of `Speculation`: `observe` gets the sampled tokens less one as accepted,
    so the token that the target adds is not among them. `mean_acceptance_length` counts it, and is
    not read. A step is counted in full, even if the text ends within it.

    Source:
        vLLM 0.32.0: fields of requests and chunks in
        `vllm/entrypoints/openai/completion/protocol.py`; `metrics.speculative_decoding`, sent with
        the usage if the server runs with `--per-request-spec-decode-metrics`, in
        `vllm/entrypoints/generate/base/protocol.py`; what they count in
        `vllm/v1/core/sched/scheduler.py` and `vllm/v1/metrics/stats.py`; the order of cut-offs in
        `vllm/v1/sample/sampler.py` (`sample`).
    """
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


def vllm_speculation(event: Event) -> Speculation | None:
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


def vllm_chunks(events: Iterable[Event]) -> Iterator[Chunk]:
    return completions(events, vllm_speculation)


VLLM = Dialect(
    "vllm",
    vllm_body,
    vllm_chunks,
    takes_ids=True,
    owner="vllm",
    version=("/version", "version"),
    cuts=frozenset({"top_k", "top_p", "min_p"}),
    # min-p comes first; with top-k alone, the order makes no difference.
    apart=(("top_p", "min_p"),),
)


# ---- SGLang


class Details(AnswerShape):
    steps: Count = Field(0, validation_alias="spec_verify_ct")
    accepted: Count = Field(
        0, validation_alias=AliasChoices("spec_num_correct_drafts", "spec_accept_token_num")
    )
    drafted: Count = Field(
        0, validation_alias=AliasChoices("spec_num_proposed_drafts", "spec_draft_token_num")
    )


class FinishReason(AnswerShape):
    type: str


class Meta(Details):
    completion_tokens: Count
    finish_reason: FinishReason | None = None


class SglangAnswer(AnswerShape):
    text: str
    output_ids: Ids | None = None
    meta_info: Meta


class Extension(AnswerShape):
    spec_tokens_details: Details | None = None


class Extended(AnswerShape):
    sglext: Extension | None = None


def sglang_body(query: Query, model: str | None) -> dict[str, Any]:
    """SGLang: its own `/generate`, which alone returns token ids.

    The same figures come from `/v1/completions` with `return_spec_tokens_details`, under
    `sglext.spec_tokens_details`; both are read. `spec_num_correct_drafts` (in older versions
    `spec_accept_token_num`) is without the token that the target adds, as in `Speculation`;
    `spec_accept_length` is tokens by verifications, counts it, and is not read. Proposed drafts are
    verifications times the tokens of a full draft.

    No server of this kind was recorded: it needs a GPU. The fields are those of the sources.

    Source:
        SGLang: `python/sglang/srt/managers/tokenizer_manager.py`
        (`_calculate_spec_decoding_metrics`, later `spec_decoding_meta.py`) and
        `python/sglang/srt/entrypoints/openai/utils.py` (`spec_tokens_details_from_meta_info`);
        cut-offs in `python/sglang/srt/layers/sampler.py`.
    """
    ids = isinstance(query.prompt, tuple)
    prompt = {"input_ids": list(query.prompt)} if ids else {"text": query.prompt}
    sampling = {
        "max_new_tokens": query.max_tokens,
        "temperature": query.warping.temperature,
        "top_p": query.warping.top_p,
        "top_k": query.warping.top_k or -1,
        "min_p": query.warping.min_p,
        "repetition_penalty": 1.0,
        "sampling_seed": query.seed,
    }
    return {**prompt, "sampling_params": sampling, "stream": query.stream}


def sglang_speculation(details: Details | None) -> Speculation | None:
    if details is None or not details.steps:
        return None
    return Speculation(details.drafted, details.accepted, details.steps)


def of_extension(event: Event) -> Speculation | None:
    extension = shaped(Extended, event).sglext
    return sglang_speculation(extension.spec_tokens_details if extension else None)


def sglang_chunks(events: Iterable[Event]) -> Iterator[Chunk]:
    """Texts and ids come whole again with every chunk, or piece by piece: a setting of the server.

    `completion_tokens` always counts from the beginning, so it tells them apart.
    """
    text, count = "", 0
    for event in events:
        if is_completion(event):
            yield from completions([event], of_extension)
            continue
        refused(event)
        answer = shaped(SglangAnswer, event)
        meta, ids = answer.meta_info, answer.output_ids
        whole = ids is None or len(ids) == meta.completion_tokens
        new = answer.text.removeprefix(text) if whole else answer.text
        yield Chunk(
            new,
            None if ids is None else tuple(ids[count:] if whole else ids),
            meta.completion_tokens,
            meta.finish_reason.type if meta.finish_reason else None,
            sglang_speculation(meta) if meta.finish_reason else None,
        )
        text, count = text + new, meta.completion_tokens


SGLANG = Dialect(
    "sglang",
    sglang_body,
    sglang_chunks,
    path="/generate",
    takes_ids=True,
    owner="sglang",
    version=("/get_server_info", "version"),
    cuts=frozenset({"top_k", "top_p", "min_p"}),
    # Its top-p counts the tokens that top-k has cut off, or does not: that depends on the backend.
    apart=(("top_k", "top_p"),),
)


# ---- llama.cpp


CUTS = ("top_n_sigma", "top_k", "top_p", "min_p")
ENDED = {"limit": "length", "eos": "stop", "word": "stop"}


class Timings(AnswerShape):
    draft_n: Count = 0
    draft_n_accepted: Count = 0


class WithTimings(AnswerShape):
    timings: Timings | None = None


class LlamaAnswer(WithTimings):
    content: str
    tokens: Ids = []
    stop: bool
    tokens_predicted: Count | None = None
    stop_type: str = ""
    model: str | None = None


def llama_body(query: Query, model: str | None) -> dict[str, Any]:
    """llama.cpp's server: its own `/completion`, which alone returns token ids.

    `draft_n_accepted` is without the token that the target adds, as in `Speculation`: the counter
    gets the sampled ids less one. The timings do not count steps, and a step may have had no draft,
    so `steps` stays unknown. A chunk holds one token, and none is sent while a character is
    incomplete: then ids are missing in a stream, and `tokens_predicted` says how many there are.

    Source:
        llama.cpp, as in llama-cpp-python 0.3.36: `tools/server/server-task.cpp`
        (`to_json_non_oaicompat`), `server-common.cpp` (`server_slot_stats::to_json`),
        `server-context.cpp` (where `n_draft_accepted` grows) and `server-schema.cpp` (fields of
        requests).
    """
    # The server's own defaults are top-k 40, top-p 0.95 and min-p 0.05; of the samplers only those
    # that are asked for are left, in the order of `decoders.Warping`.
    cuts = [name for name in CUTS if name in query.cuts]
    first, last = ([], ["temperature"]) if query.warping.temperature_last else (["temperature"], [])
    return {
        **neutral(query, model),
        **{name: getattr(query.warping, name) for name in cuts},
        "samplers": [*first, *cuts, *last],
        "repeat_penalty": 1.0,
        "return_tokens": True,
    }


def llama_speculation(event: Event) -> Speculation | None:
    timings = shaped(WithTimings, event).timings
    if timings is None or not timings.draft_n:
        return None
    return Speculation(timings.draft_n, timings.draft_n_accepted)


def llama_chunks(events: Iterable[Event]) -> Iterator[Chunk]:
    for event in events:
        if is_completion(event):
            yield from completions([event], llama_speculation)
            continue
        refused(event)
        answer = shaped(LlamaAnswer, event)
        yield Chunk(
            answer.content,
            tuple(answer.tokens),
            answer.tokens_predicted,
            ENDED.get(answer.stop_type, answer.stop_type) if answer.stop else None,
            llama_speculation(event) if answer.stop else None,
            answer.model,
        )


LLAMA_CPP = Dialect(
    "llama.cpp",
    llama_body,
    llama_chunks,
    path="/completion",
    takes_ids=True,
    owner="llamacpp",
    version=("/props", "build_info"),
    cuts=frozenset({*CUTS, "temperature_last"}),
)


# ---- transformers serve


def transformers_body(query: Query, model: str | None) -> dict[str, Any]:
    """`transformers serve`: text both ways, no counts of draft tokens.

    Source:
        transformers 5.24.0: `transformers/cli/serving/completion.py`; `_build_generation_config` in
        `transformers/cli/serving/utils.py`. It refuses fields that it does not know.
    """
    # Otherwise it draws only if the model's generation config says so, and cuts off at top-k 50.
    config = {
        "do_sample": query.warping.temperature > 0,
        "top_k": query.warping.top_k,
        "max_new_tokens": query.max_tokens,
        **({"min_p": query.warping.min_p} if query.warping.min_p else {}),
    }
    return {**neutral(query, model), "generation_config": json.dumps(config)}


TRANSFORMERS = Dialect(
    "transformers",
    transformers_body,
    sign="/load_model",
    cuts=frozenset({"top_k", "top_p", "min_p"}),
)


DIALECTS = {each.kind: each for each in (VLLM, SGLANG, LLAMA_CPP, TRANSFORMERS, OTHER)}
