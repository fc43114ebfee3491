"""Prompts: texts and chats, and sets of them from a file, a link or this project."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decoders.errors import InputError, is_whole, quoted, refuse
from decoders.inputs import checked as checked_messages
from decoders.process import assets as assets_of_decoders
from workbench import assets

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
        refuse(
            (not messages, "The prompt is empty; give at least one message."),
            (
                len(messages) > MOST_MESSAGES,
                f"The prompt has {len(messages):,} messages; give at most {MOST_MESSAGES:,}.",
            ),
        )
        return Chat(tuple((m["role"], m["content"]) for m in checked_messages(messages)))

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
    """A prompt in one line: what is said, with roles if there are several messages."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt.messages) == 1:
        return prompt.messages[0][1]
    return " · ".join(f"{role}: {content}" for role, content in prompt.messages)


def plain(prompt: Words) -> str | list[dict[str, str]]:
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
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if is_messages(value) else text


def is_messages(value: Any) -> bool:
    """Whether JSON means messages, though perhaps wrong ones: a list of objects with roles."""
    return (
        isinstance(value, Sequence)
        and bool(value)
        and all(isinstance(each, dict) for each in value)
        and any("role" in each for each in value)
    )


BUILT_IN = ("stories", "refrains", "chats")
LONGEST_PROMPT = 20_000  # characters of a prompt in a file of many
LONGEST_TYPED = 1_000_000  # of a single one: more than the models here have room for
LARGEST_FILE = 16 * 2**20  # bytes
MOST_PROMPTS = 10_000


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text to continue, or a chat to answer.

    Attributes:
        text: the text, or the chat
        place: its origin for messages, such as "prompts.txt, line 3"
        ids: its tokens, if they are known; otherwise (), and the text is tokenised
    """

    text: Words
    place: str
    ids: tuple[int, ...] = ()


def is_text(value: str) -> bool:
    """Whether it can be encoded; half a character (a lone surrogate) from a browser cannot."""
    return re.search("[\ud800-\udfff]", value) is None


def checked(prompt: Any) -> Words:
    """The prompt, a text or a list of messages; raises InputError if it is empty or too long."""
    prompt = Chat.of(prompt) if isinstance(prompt, (list, tuple)) else prompt
    if not isinstance(prompt, str | Chat):
        raise InputError(
            f"The prompt must be a text or a list of messages, not {type(prompt).__name__}."
        )
    words = title(prompt)
    refuse(
        (not words.strip(), "The prompt is empty; write a few words."),
        (
            len(words) > LONGEST_TYPED,
            f"The prompt has {len(words):,} characters; shorten it to at most {LONGEST_TYPED:,}.",
        ),
        (
            not is_text(words),
            "The prompt contains half a character (a lone surrogate); type it again.",
        ),
    )
    return prompt


@dataclass(frozen=True)
class PromptSet:
    name: str
    prompts: tuple[Prompt, ...]

    def first(self, count: int) -> "PromptSet":
        if not is_whole(count) or count < 1:
            raise InputError(
                f"The number of prompts must be a whole number of at least 1, not {quoted(count)}."
            )
        return PromptSet(self.name, self.prompts[:count])

    def to_json(self) -> dict[str, Any]:
        texts = None if self.name in BUILT_IN else [plain(p.text) for p in self.prompts]
        return {"name": self.name, "count": len(self.prompts), "texts": texts}

    @staticmethod
    def from_json(data: Any) -> "PromptSet":
        """The set in data that `to_json` gave; raises InputError if the prompts are not in it."""
        if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
            raise InputError(
                "The prompts of a study must have a name, as in {'name': 'stories'}, "
                f"not {quoted(data)}."
            )
        name, count, texts = data["name"], data.get("count"), data.get("texts")
        if texts is None and name in BUILT_IN:
            whole = built_in(name)
            return whole if count is None else whole.first(count)
        written = isinstance(texts, list) and all(
            t.strip() if isinstance(t, str) else isinstance(t, list) for t in texts
        )
        if not (written and texts):
            raise InputError(
                f"The prompts {quoted(name)} are not part of this study; choose their file again."
            )
        words = (Chat.of(text) if isinstance(text, list) else text for text in texts)
        return PromptSet(
            name, tuple(Prompt(text, f"{name}, prompt {i}") for i, text in enumerate(words, 1))
        )


def built_in(name: str) -> PromptSet:
    """A set by its name.

    `stories` are held-out openings, `refrains` prompts that suit drafts that copy, and `chats`
    questions of eight kinds in turns, for models that answer.

    Raises:
        InputError: for any other name
    """
    if name == "stories":
        # They belong to the embedded pair, which was trained without them.
        file = assets_of_decoders() / "stories" / "prompts.json"
        openings = json.loads(file.read_text(encoding="utf-8"))["openings"]
        return PromptSet(
            name, tuple(Prompt(text, f"stories, opening {i}") for i, text in enumerate(openings, 1))
        )
    if name in BUILT_IN:
        return PromptSet(name, read(file_of(name)).prompts)
    raise InputError(
        f"There are no built-in prompts {quoted(name)}; take {' or '.join(BUILT_IN)}, or a file."
    )


def file_of(name: str) -> Path:
    return assets() / "batch" / f"{name}.jsonl"


def find(name: str) -> PromptSet:
    """A built-in set, or else a file: for callers who may name paths on this machine."""
    return built_in(name) if name in BUILT_IN else read(name)


def read(path: str | Path) -> PromptSet:
    """The prompts of a file, without blank lines.

    Args:
        path: a text file with one prompt per line, or a `.jsonl` file with objects that have a
            "prompt", a text or a list of messages

    Raises:
        InputError: naming the line, for a prompt that is empty, not UTF-8, not JSON or too long;
            and for a file that is too large or has too many prompts
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            return parse(path.name, file.read(LARGEST_FILE + 1))
    except OSError as error:
        raise InputError(
            f"{path.name} cannot be read: {error.strerror}; give a text file or a .jsonl file."
        ) from None


def parse(name: str, data: bytes) -> PromptSet:
    refuse(
        (
            len(data) > LARGEST_FILE,
            f"{name} is larger than {LARGEST_FILE // 2**20} MB; give a smaller file.",
        )
    )
    prompts = list(_lines(name, data))
    refuse(
        (not prompts, f"{name} has no prompts; give at least one."),
        (
            len(prompts) > MOST_PROMPTS,
            f"{name} has {len(prompts):,} prompts; give at most {MOST_PROMPTS:,}.",
        ),
    )
    # A name may contain bytes that are not text.
    return PromptSet(name.encode(errors="replace").decode(), tuple(prompts))


def _lines(name: str, data: bytes) -> Iterator[Prompt]:
    is_json = Path(name).suffix.lower() == ".jsonl"
    for number, line in enumerate(data.split(b"\n"), 1):
        place = f"{name}, line {number}"
        text = decoded(line, place).rstrip("\r")
        if text.strip():
            prompt = _json_prompt(text, place) if is_json else text
            if (length := len(title(prompt))) > LONGEST_PROMPT:
                raise InputError(
                    f"{place}: {length:,} characters are too long; a prompt has at most "
                    f"{LONGEST_PROMPT:,}."
                )
            yield Prompt(prompt, place)


def decoded(data: bytes, place: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(
            f"{place}: not text in UTF-8; save the file as plain text in UTF-8."
        ) from None
    if "\0" in text:
        raise InputError(f"{place}: zero bytes are not text; save the file as plain text in UTF-8.")
    return text


def _json_prompt(line: str, place: str) -> Words:
    try:
        prompt = json.loads(line)["prompt"]
    except (ValueError, KeyError, TypeError, RecursionError):
        prompt = None
    if is_messages(prompt):
        return placed(prompt, place)
    if not isinstance(prompt, str) or not prompt.strip() or not is_text(prompt):
        raise InputError(
            f'{place}: must be a JSON object with a text as "prompt", such as {{"prompt": "Once"}}.'
        )
    return prompt


def placed(messages: Any, place: str) -> Chat:
    try:
        return Chat.of(messages)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def whole(text: str) -> int:
    """A number in a link.

    Raises:
        InputError: if it is not a whole number from 1 to 10,000
    """
    if not text.isdecimal() or len(text) > 5 or not 1 <= int(text) <= MOST_PROMPTS:
        raise InputError(
            f"only whole numbers from 1 to {MOST_PROMPTS:,} can be used, not {quoted(text)}."
        )
    return int(text)
