"""llama.cpp's server: its own `/completion`, which alone returns token ids.

`draft_n_accepted` is without the token that the target adds, as in `Speculation`: the counter gets
the sampled ids less one. The timings do not count steps, and a step may have had no draft, so
`steps` stays unknown. A chunk holds one token, and none is sent while a character is incomplete:
then ids are missing in a stream, and `tokens_predicted` says how many there are.

Source:
    llama.cpp, as in llama-cpp-python 0.3.36: `tools/server/server-task.cpp`
    (`to_json_non_oaicompat`), `server-common.cpp` (`server_slot_stats::to_json`),
    `server-context.cpp` (where `n_draft_accepted` grows) and `server-schema.cpp` (fields of
    requests).
"""

from collections.abc import Iterable, Iterator
from typing import Any

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
    neutral,
    refused,
    shaped,
)  # fmt: skip

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


def body(query: Query, model: str | None) -> dict[str, Any]:
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


def speculation(event: Event) -> Speculation | None:
    timings = shaped(WithTimings, event).timings
    if timings is None or not timings.draft_n:
        return None
    return Speculation(timings.draft_n, timings.draft_n_accepted)


def chunks(events: Iterable[Event]) -> Iterator[Chunk]:
    for event in events:
        if is_completion(event):
            yield from completions([event], speculation)
            continue
        refused(event)
        answer = shaped(LlamaAnswer, event)
        yield Chunk(
            answer.content,
            tuple(answer.tokens),
            answer.tokens_predicted,
            ENDED.get(answer.stop_type, answer.stop_type) if answer.stop else None,
            speculation(event) if answer.stop else None,
            answer.model,
        )


LLAMA_CPP = Dialect(
    "llama.cpp",
    body,
    chunks,
    path="/completion",
    takes_ids=True,
    owner="llamacpp",
    version=("/props", "build_info"),
    cuts=frozenset({*CUTS, "temperature_last"}),
)
