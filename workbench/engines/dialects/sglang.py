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
    `python/sglang/srt/entrypoints/openai/utils.py` (`spec_tokens_details_from_meta_info`); cut-offs
    in `python/sglang/srt/layers/sampler.py`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import AliasChoices, Field

from workbench.engines.record import (
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
    refused,
    shaped,
)  # fmt: skip


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


def body(query: Query, model: str | None) -> dict[str, Any]:
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


def speculation(details: Details | None) -> Speculation | None:
    if details is None or not details.steps:
        return None
    return Speculation(details.drafted, details.accepted, details.steps)


def of_extension(event: Event) -> Speculation | None:
    extension = shaped(Extended, event).sglext
    return speculation(extension.spec_tokens_details if extension else None)


def chunks(events: Iterable[Event]) -> Iterator[Chunk]:
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
            speculation(meta) if meta.finish_reason else None,
        )
        text, count = text + new, meta.completion_tokens


SGLANG = Dialect(
    "sglang",
    body,
    chunks,
    path="/generate",
    takes_ids=True,
    owner="sglang",
    version=("/get_server_info", "version"),
    cuts=frozenset({"top_k", "top_p", "min_p"}),
    # Its top-p counts the tokens that top-k has cut off, or does not: that depends on the backend.
    apart=(("top_k", "top_p"),),
)
