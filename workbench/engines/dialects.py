"""One request to a server and its answer, and how each engine is asked and read: its `Dialect`.

Any server that is no other is taken for one with OpenAI's completions API. Their names are at the
end.

Source:
    OpenAI, API reference, "Create completion (legacy)".
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Self

from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError

from decoders import Warping
from decoders.errors import InputError

Prompt = tuple[int, ...] | str
USUAL = Warping()  # the model's own distribution


@dataclass(frozen=True)
class Query:
    """What a server is asked for: one text.

    Attributes:
        prompt: token ids; as text for servers that take no ids
        max_tokens: the most new tokens
        warping: the sampling; no penalty is applied
        seed: of the server's random numbers
        stream: whether tokens are sent as they are made; without it, only the total time is known
    """

    prompt: Prompt
    max_tokens: int
    warping: Warping = USUAL
    seed: int = 0
    stream: bool = True

    @property
    def likeliest(self) -> "Query":
        """The same without what makes no difference: at temperature 0, nothing is left to cut."""
        return self if self.warping.temperature else replace(self, warping=Warping(0.0))

    @property
    def cuts(self) -> frozenset[str]:
        """The fields that change the distribution, besides the temperature."""
        own, names = self.warping, {each.name for each in fields(Warping)} - {"temperature"}
        changes = {name for name in names if getattr(own, name) != getattr(USUAL, name)}
        if own.temperature == 1 or not changes & {"top_p", "min_p"}:
            changes.discard("temperature_last")
        return frozenset(changes)


@dataclass(frozen=True)
class Chunk:
    """A piece of an answer, as it arrives.

    Attributes:
        text: the text that it adds
        ids: the token ids that it adds; None if the server does not tell them
        count: tokens of the answer so far, where they are counted
        finished: why the answer ended, "" if it did not say; None before the end
        model: the model that answers, if it is named
    """

    text: str = ""
    ids: tuple[int, ...] | None = None
    count: int | None = None
    finished: str | None = None
    model: str | None = None


Event = dict[str, Any]
Count = Annotated[int, Field(ge=0, le=2**53)]
Ids = Annotated[list[Annotated[int, Field(ge=0, le=2**31)]], Field(max_length=2**20)]


def inside(name: str, *names: str | int, default: Any = None) -> Any:
    """A field that stands within others of an answer."""
    return Field(default, validation_alias=AliasPath(name, *names))


class AnswerShape(BaseModel):
    """An answer with the fields that are read; all others are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)

    @classmethod
    def of(cls, event: Any) -> Self:
        """An answer of this shape.

        Raises:
            InputError: for any other, with the first field that does not fit
        """
        try:
            return cls.model_validate(event)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "the whole"
            # The server chooses the names of fields, but those of a shape are ours.
            raise InputError(
                "The answer has another shape than this API's: "
                f"{where[:80]}: {first['msg'].lower()}."
            ) from None


class Completion(AnswerShape):
    """An answer, or a chunk of it: they differ in nothing that is read."""

    choices: list[Any]
    text: str = inside("choices", 0, "text", default="")
    finished: str | None = inside("choices", 0, "finish_reason")
    # vLLM's, if they are asked for.
    ids: Ids | None = inside("choices", 0, "token_ids")
    model: str | None = None
    count: Count | None = inside("usage", "completion_tokens")


def unbroken(events: Iterable[Event]) -> Iterator[Event]:
    """The events; InputError, in the server's words, for one that tells of a failure.

    Several servers send one in the middle of a stream, where the status has long been 200.
    """
    for event in events:
        if event.get("error"):
            words = message(event).rstrip(".") or "it does not say why"
            raise InputError(f"The server broke off: {words}.")
        yield event


def message(event: Any) -> str:
    """The words of an error, on one line; "" if there are none."""
    value = event
    for name in ("error", "detail", "message"):
        if isinstance(value, dict) and name in value:
            value = value[name]
    words = value if isinstance(value, str) else ""
    return " ".join("".join(c if c.isprintable() else " " for c in words[:300]).split())


def completions(events: Iterable[Event]) -> Iterator[Chunk]:
    """The chunks of an answer of the completions API, whole or in chunks."""
    for event in unbroken(events):
        # The one that counts tokens may have no choice.
        answer = Completion.of({"choices": [], **event} if event.get("usage") else event)
        ids = None if answer.ids is None else tuple(answer.ids)
        yield Chunk(answer.text, ids, answer.count, answer.finished, answer.model)


@dataclass(frozen=True)
class Dialect:
    """How an engine is asked and read.

    Attributes:
        kind: its name
        body: the body of a request, given what is asked and the model's name in the server's words
        chunks: reads an answer, from its pieces or as a whole
        path: where it is posted
        version: where the engine tells its version: a path, and a field of the object there
        takes_ids: whether a prompt may be token ids
        owner: `owned_by` in its list of models; "" if that tells nothing
        cuts: the cut-offs of `Query` that it can be asked for
        apart: pairs of them that it applies in another order than `decoders.Warping`, so that both
            together are another distribution
    """

    kind: str
    body: Callable[[Query, str | None], dict[str, Any]]
    chunks: Callable[[Iterable[Event]], Iterator[Chunk]] = completions
    path: str = "/v1/completions"
    version: tuple[str, str] | None = None
    takes_ids: bool = False
    owner: str = ""
    cuts: frozenset[str] = frozenset({"top_p"})
    apart: tuple[tuple[str, str], ...] = ()

    def unsaid(self, query: Query) -> str | None:
        """Why the engine cannot be asked for this sampling, in words; None if it can."""
        if missing := sorted(query.cuts - self.cuts):
            return f"cannot be asked for `{missing[0]}`; set it to its default"
        for first, second in self.apart:
            if {first, second} <= query.cuts:
                return (
                    f"applies `{first}` and `{second}` in another order than here, which is "
                    "another distribution; set one of them to its default"
                )
        return None


def neutral(query: Query, model: str | None) -> dict[str, Any]:
    """The fields that OpenAI's API describes; nothing is penalised."""
    return {
        **({"model": model} if model is not None else {}),
        "prompt": list(query.prompt) if isinstance(query.prompt, tuple) else query.prompt,
        "max_tokens": query.max_tokens,
        "temperature": query.warping.temperature,
        "top_p": query.warping.top_p,
        "seed": query.seed,
        "stream": query.stream,
    }


OTHER = Dialect("other", neutral)


# ---- vLLM


def vllm_body(query: Query, model: str | None) -> dict[str, Any]:
    """vLLM: token ids both ways.

    Source:
        vLLM 0.32.0: fields of requests and chunks in
        `vllm/entrypoints/openai/completion/protocol.py`; the order of cut-offs in
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


VLLM = Dialect(
    "vllm",
    vllm_body,
    version=("/version", "version"),
    takes_ids=True,
    owner="vllm",
    cuts=frozenset({"top_k", "top_p", "min_p"}),
    # min-p comes first; with top-k alone, the order makes no difference.
    apart=(("top_p", "min_p"),),
)


# ---- SGLang


class SglangAnswer(AnswerShape):
    text: str
    output_ids: Ids | None = None
    count: Count = inside("meta_info", "completion_tokens", default=...)
    finished: str | None = inside("meta_info", "finish_reason", "type")


def sglang_body(query: Query, model: str | None) -> dict[str, Any]:
    """SGLang: its own `/generate`, which alone returns token ids.

    No server of this kind was recorded: it needs a GPU. The fields are those of the sources.

    Source:
        SGLang: `python/sglang/srt/managers/tokenizer_manager.py`; cut-offs in
        `python/sglang/srt/layers/sampler.py`.
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


def sglang_chunks(events: Iterable[Event]) -> Iterator[Chunk]:
    """Texts and ids come whole again with every chunk, or piece by piece: a setting of the server.

    `completion_tokens` always counts from the beginning, so it tells them apart.
    """
    text, count = "", 0
    for event in unbroken(events):
        answer = SglangAnswer.of(event)
        ids = answer.output_ids
        again = ids is None or len(ids) == answer.count
        new = answer.text.removeprefix(text) if again else answer.text
        yield Chunk(
            new,
            None if ids is None else tuple(ids[count:] if again else ids),
            answer.count,
            answer.finished,
        )
        text, count = text + new, answer.count


SGLANG = Dialect(
    "sglang",
    sglang_body,
    sglang_chunks,
    path="/generate",
    version=("/get_server_info", "version"),
    takes_ids=True,
    owner="sglang",
    cuts=frozenset({"top_k", "top_p", "min_p"}),
    # Its top-p counts the tokens that top-k has cut off, or does not: that depends on the backend.
    apart=(("top_k", "top_p"),),
)


# ---- llama.cpp


CUTS = ("top_n_sigma", "top_k", "top_p", "min_p")
ENDED = {"limit": "length", "eos": "stop", "word": "stop"}


class LlamaAnswer(AnswerShape):
    content: str
    tokens: Ids = []
    stop: bool
    tokens_predicted: Count | None = None
    stop_type: str = ""
    model: str | None = None


def llama_body(query: Query, model: str | None) -> dict[str, Any]:
    """llama.cpp's server: its own `/completion`, which alone returns token ids.

    A chunk holds one token, and none is sent while a character is incomplete: then ids are missing
    in a stream, and `tokens_predicted` says how many there are.

    Source:
        llama.cpp, as in llama-cpp-python 0.3.36: `tools/server/server-task.cpp`
        (`to_json_non_oaicompat`) and `server-schema.cpp` (fields of requests).
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


def llama_chunks(events: Iterable[Event]) -> Iterator[Chunk]:
    for event in unbroken(events):
        answer = LlamaAnswer.of(event)
        yield Chunk(
            answer.content,
            tuple(answer.tokens),
            answer.tokens_predicted,
            ENDED.get(answer.stop_type, answer.stop_type) if answer.stop else None,
            answer.model,
        )


LLAMA_CPP = Dialect(
    "llama.cpp",
    llama_body,
    llama_chunks,
    path="/completion",
    version=("/props", "build_info"),
    takes_ids=True,
    owner="llamacpp",
    cuts=frozenset({*CUTS, "temperature_last"}),
)


# ---- transformers serve


def transformers_body(query: Query, model: str | None) -> dict[str, Any]:
    """`transformers serve`: text both ways.

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
    cuts=frozenset({"top_k", "top_p", "min_p"}),
)


DIALECTS = {each.kind: each for each in (VLLM, SGLANG, LLAMA_CPP, TRANSFORMERS, OTHER)}
