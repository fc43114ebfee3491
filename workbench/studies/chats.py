"""Prompts of messages (Chat): as a study has them, and as text in boxes, links and operands."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from decoders.errors import refuse
from decoders.prompts import checked

MOST_MESSAGES = 1000


@dataclass(frozen=True, slots=True)
class Chat:
    """A prompt of messages, which the tokenizer's chat template renders.

    Attributes:
        messages: the role and the content of each
    """

    messages: tuple[tuple[str, str], ...]

    @staticmethod
    def of(messages: Any) -> "Chat":
        """The chat of a list of messages, each with role and content; raises InputError."""
        refuse(
            (not messages, "The prompt is empty; give at least one message."),
            (
                len(messages) > MOST_MESSAGES,
                f"The prompt has {len(messages):,} messages; give at most {MOST_MESSAGES:,}.",
            ),
        )
        return Chat(tuple((m["role"], m["content"]) for m in checked(messages)))

    @property
    def title(self) -> str:
        """The chat in one line: what is said, with roles if there are several messages."""
        if len(self.messages) == 1:
            return self.messages[0][1]
        return " · ".join(f"{role}: {content}" for role, content in self.messages)

    def to_json(self) -> list[dict[str, str]]:
        return [{"role": role, "content": content} for role, content in self.messages]

    def answered(self, text: str) -> "Chat":
        """The chat with more text in the answer that its last message begins."""
        *before, (role, content) = self.messages
        if role == "assistant":
            return Chat((*before, (role, content + text)))
        return Chat((*self.messages, ("assistant", text)))


Words = str | Chat


def title(prompt: Words) -> str:
    return prompt.title if isinstance(prompt, Chat) else prompt


def plain(prompt: Words) -> str | list[dict[str, str]]:
    """A prompt as JSON has it."""
    return prompt.to_json() if isinstance(prompt, Chat) else prompt


def written(prompt: Any) -> str:
    """A prompt of a study's JSON as text, for a box or a link; `typed` reads it."""
    if isinstance(prompt, str):
        return prompt
    return json.dumps(prompt, ensure_ascii=False)


def typed(text: str) -> str | list[Any]:
    """A prompt that somebody typed: a list of messages in JSON is one, anything else a text."""
    if not text.strip().startswith("["):
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if is_messages(found) else text


def is_messages(value: Any) -> bool:
    """Whether JSON means messages, though perhaps wrong ones: a list of objects with roles."""
    return (
        isinstance(value, Sequence)
        and bool(value)
        and all(isinstance(each, dict) for each in value)
        and any("role" in each for each in value)
    )
