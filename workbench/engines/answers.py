"""The shapes of answers, and the reading of those that OpenAI's completions API describes."""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from decoders.errors import InputError
from workbench.engines.record import Chunk, Speculation

Event = dict[str, Any]
Count = Annotated[int, Field(ge=0, le=2**53)]
Ids = Annotated[list[Annotated[int, Field(ge=0, le=2**31)]], Field(max_length=2**20)]


class Shape(BaseModel):
    """An answer with the fields that are read; all others are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)


class Usage(Shape):
    completion_tokens: Count | None = None


class CompletionChoice(Shape):
    text: str = ""
    finish_reason: str | None = None
    # vLLM's, if they are asked for.
    token_ids: Ids | None = None


class Completion(Shape):
    """An answer, or a chunk of it: they differ in nothing that is read."""

    choices: list[CompletionChoice]
    model: str | None = None
    usage: Usage | None = None


S = TypeVar("S", bound=Shape)


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
    found = event
    for name in ("error", "detail", "message"):
        if isinstance(found, dict) and name in found:
            found = found[name]
    words = found if isinstance(found, str) else ""
    return " ".join("".join(c if c.isprintable() else " " for c in words[:300]).split())


def is_completion(event: Event) -> bool:
    """Whether an event is the completions API's; the one that counts tokens may have no choice."""
    return "choices" in event or "usage" in event


def completions(
    events: Iterable[Event], speculation: Callable[[Event], Speculation | None] = lambda _: None
) -> Iterator[Chunk]:
    """The chunks of an answer of the completions API, whole or in chunks.

    Args:
        events: the answer, or its chunks
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
