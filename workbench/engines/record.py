"""One request to a server and its answer, in terms that are the same for every engine (Record).

A `Dialect` says how an engine is asked and read. Any other server is taken for one
with OpenAI's completions API.

Source:
    OpenAI, API reference, "Create completion (legacy)".
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

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
class Speculation:
    """What became of the draft tokens.

    In every count, an accepted token is a draft token that was kept. The token that the target
    adds after them, instead of a refused one or after the last, is not counted: each verification
    writes one token more than it accepts.

    Attributes:
        drafted: draft tokens
        accepted: those of them that were kept
        steps: verifications, each of one draft; None if the engine does not count them
        per_step: drafted and accepted tokens of each step in order; empty if they are not known

    Raises:
        InputError: for counts that contradict each other
    """

    drafted: int
    accepted: int
    steps: int | None = None
    per_step: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        wrong = (
            not 0 <= self.accepted <= self.drafted
            or (self.steps is not None and self.steps < bool(self.drafted))
            or any(not 0 <= accepted <= drafted for drafted, accepted in self.per_step)
            or (self.per_step and sum(x for _, x in self.per_step) != self.accepted)
        )
        if wrong:
            raise InputError("The server's counts of draft tokens contradict each other.")

    @property
    def length(self) -> float | None:
        """Mean tokens written by a verification, the target's included."""
        return 1 + self.accepted / self.steps if self.steps else None


@dataclass(frozen=True)
class Chunk:
    """A piece of an answer, as it arrives.

    Attributes:
        text: the text that it adds
        ids: the token ids that it adds; None if the server does not tell them
        count: tokens of the answer so far, where they are counted
        finished: why the answer ended, "" if it did not say; None before the end
        speculation: told once, mostly at the end
        model: the model that answers, if it is named
    """

    text: str = ""
    ids: tuple[int, ...] | None = None
    count: int | None = None
    finished: str | None = None
    speculation: Speculation | None = None
    model: str | None = None


@dataclass(frozen=True)
class Record:
    """A request and its answer.

    Attributes:
        engine: the engine's name, as whoever runs the workbench has named it
        kind: the dialect that it speaks
        model: the model that answered, in its own words
        text: the new text
        tokens: the ids of the new tokens; None if not every one was told
        count: number of new tokens; None if it is not known
        arrivals: for each piece that arrived the seconds since it was asked, and its tokens, None
            if they are not known; a speculative engine sends several tokens at once
        seconds: from the request to the end of the answer
        finished: "length", "stop", …; None if the answer was cut off
        speculation: what became of draft tokens; None if nothing is told
        note: one sentence about an answer that was cut off; "" if it is whole
    """

    engine: str
    kind: str
    model: str | None
    text: str
    tokens: tuple[int, ...] | None
    count: int | None
    arrivals: tuple[tuple[float, int | None], ...]
    seconds: float
    finished: str | None
    speculation: Speculation | None = None
    note: str = ""

    @property
    def first(self) -> float | None:
        """Seconds to the first token; None if none came."""
        return self.arrivals[0][0] if self.arrivals else None


def plain(value: Any) -> Any:
    """Tuples as lists, as JSON has them."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


Event = dict[str, Any]
Count = Annotated[int, Field(ge=0, le=2**53)]
Ids = Annotated[list[Annotated[int, Field(ge=0, le=2**31)]], Field(max_length=2**20)]


class AnswerShape(BaseModel):
    """An answer with the fields that are read; all others are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)


class Usage(AnswerShape):
    completion_tokens: Count | None = None


class CompletionChoice(AnswerShape):
    text: str = ""
    finish_reason: str | None = None
    # vLLM's, if they are asked for.
    token_ids: Ids | None = None


class Completion(AnswerShape):
    """An answer, or a chunk of it: they differ in nothing that is read."""

    choices: list[CompletionChoice]
    model: str | None = None
    usage: Usage | None = None


S = TypeVar("S", bound=AnswerShape)


def shaped(shape: type[S], event: Any) -> S:
    """An answer of this shape.

    Raises:
        InputError: for any other, with the first field that does not fit
    """
    try:
        return shape.model_validate(event)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        # The server chooses the names of fields, but those of a shape are ours.
        raise InputError(
            f"The answer has another shape than this API's: {where[:80]}: {first['msg'].lower()}."
        ) from None


def refused(event: Event) -> None:
    """Raise InputError for an event that tells of a failure, in the server's words.

    Several servers send one in the middle of a stream, where the status has long been 200.
    """
    if event.get("error"):
        words = message(event).rstrip(".") or "it does not say why"
        raise InputError(f"The server broke off: {words}.")


def message(event: Any) -> str:
    """The words of an error, on one line; "" if there are none."""
    value = event
    for name in ("error", "detail", "message"):
        if isinstance(value, dict) and name in value:
            value = value[name]
    words = value if isinstance(value, str) else ""
    return " ".join("".join(c if c.isprintable() else " " for c in words[:300]).split())


def is_completion(event: Event) -> bool:
    """Whether an event is the completions API's; the one that counts tokens may have no choice."""
    return "choices" in event or "usage" in event


def completions(
    events: Iterable[Event], speculation: Callable[[Event], Speculation | None] = lambda _: None
) -> Iterator[Chunk]:
    """The chunks of an answer of the completions API, whole or in chunks.

    Args:
        speculation: reads an engine's own fields
    """
    for event in events:
        refused(event)
        answer = shaped(Completion, {"choices": [], **event} if event.get("usage") else event)
        choice = answer.choices[0] if answer.choices else CompletionChoice()
        yield Chunk(
            choice.text,
            None if choice.token_ids is None else tuple(choice.token_ids),
            None if answer.usage is None else answer.usage.completion_tokens,
            choice.finish_reason,
            speculation(event),
            answer.model,
        )


Reader = Callable[[Iterable[Event]], Iterator[Chunk]]


@dataclass(frozen=True)
class Dialect:
    """How an engine is asked and read.

    Attributes:
        kind: its name
        body: the body of a request, given what is asked and the model's name in the server's words
        chunks: reads an answer, from its pieces or as a whole
        path: where it is posted
        takes_ids: whether a prompt may be token ids
        owner: `owned_by` in its list of models; "" if that tells nothing
        sign: a path that only this engine answers, for those whose `owner` tells nothing
        version: where the version is, and the field that holds it; None if it is not told
        cuts: the cut-offs of `Query` that it can be asked for
        apart: pairs of them that it applies in another order than `decoders.Warping`, so that both
            together are another distribution
    """

    kind: str
    body: Callable[[Query, str | None], dict[str, Any]]
    chunks: Reader = completions
    path: str = "/v1/completions"
    takes_ids: bool = False
    owner: str = ""
    sign: str = ""
    version: tuple[str, str] | None = None
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
