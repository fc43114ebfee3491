"""Sets of prompts, from a file, a folder or this project, each prompt with the place it was read from."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decoders import InputError
from decoders.assets import assets as assets_of_decoders
from decoders.inputs import is_whole
from workbench.assets import assets

BUILT_IN = ("stories", "refrains")
LONGEST_PROMPT = 20_000  # characters
LARGEST_FILE = 16 * 2**20  # bytes
MOST_PROMPTS = 10_000


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text to continue; `place` says where it comes from, such as "prompts.txt, line 3", for messages. `ids` are its tokens if they
    are known; () has the text tokenised."""

    text: str
    place: str
    ids: tuple[int, ...] = ()


def is_text(value: str) -> bool:
    """Whether it can be encoded: half a character (a lone surrogate), which a browser may send, cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked(prompt: Any) -> str:
    """The prompt. Raises InputError if it is not a text, or empty."""
    if not isinstance(prompt, str):
        raise InputError(f"The prompt must be a text, not {type(prompt).__name__}.")
    if not prompt.strip():
        raise InputError("The prompt is empty; write a few words.")
    if not is_text(prompt):
        raise InputError("The prompt contains half a character (a lone surrogate); type it again.")
    return prompt


@dataclass(frozen=True)
class PromptSet:
    name: str
    prompts: tuple[Prompt, ...]

    def first(self, count: int) -> "PromptSet":
        """Raises InputError unless count is at least 1; a set with fewer prompts is taken whole."""
        if not is_whole(count) or count < 1:
            raise InputError(f"The number of prompts must be a whole number of at least 1, not {count!r}.")
        return PromptSet(self.name, self.prompts[:count])

    def to_json(self) -> dict[str, Any]:
        """Name and number; the texts too unless they come with this project."""
        texts = None if self.name in BUILT_IN else [p.text for p in self.prompts]
        return {"name": self.name, "count": len(self.prompts), "texts": texts}

    @staticmethod
    def from_json(data: Any) -> "PromptSet":
        """Raises InputError if the prompts are not in the data."""
        if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
            raise InputError(f"The prompts of a study must have a name, as in {{'name': 'stories'}}, not {data!r:.80}.")
        name, count, texts = data["name"], data.get("count"), data.get("texts")
        if texts is None and name in BUILT_IN:
            found = built_in(name)
            return found if count is None else found.first(count)
        if not isinstance(texts, list) or not texts or not all(isinstance(t, str) and t.strip() for t in texts):
            raise InputError(f"The prompts {name!r} are not part of this study; choose their file again.")
        return PromptSet(name, tuple(Prompt(text, f"{name}, prompt {i}") for i, text in enumerate(texts, 1)))


def built_in(name: str) -> PromptSet:
    """`stories`: held-out openings of stories; `refrains`: prompts that repeat themselves, for drafts that copy."""
    if name == "stories":
        stories = assets_of_decoders() / "stories"  # they belong to the embedded pair, which held them out
        openings = json.loads((stories / "prompts.json").read_text(encoding="utf-8"))["openings"]
        return PromptSet(name, tuple(Prompt(text, f"stories, opening {i}") for i, text in enumerate(openings, 1)))
    if name == "refrains":
        return PromptSet(name, read(assets() / "batch" / "refrains.jsonl").prompts)
    raise InputError(f"There are no built-in prompts {name!r}; take {' or '.join(BUILT_IN)}, or a file or folder.")


def find(name: str) -> PromptSet:
    """A built-in set by its name, or else a file or folder: only for callers who may name paths on this machine."""
    return built_in(name) if name in BUILT_IN else read(name)


def read(path: str | Path) -> PromptSet:
    """A text file with one prompt per line, a `.jsonl` file with objects that have a "prompt", or a folder of text files, each one prompt.

    Blank lines are left out. Raises InputError, naming the line, for what is empty, not UTF-8, not JSON, or longer than LONGEST_PROMPT
    characters; and for a file of more than LARGEST_FILE bytes or MOST_PROMPTS prompts.
    """
    path = Path(path)
    try:
        prompts = list(_folder(path) if path.is_dir() else _lines(path))
    except OSError as error:
        raise InputError(
            f"{path.name} cannot be read: {error.strerror}; give a text file, a .jsonl file or a folder of text files."
        ) from None
    if not prompts:
        raise InputError(f"{path.name} has no prompts; give at least one.")
    if len(prompts) > MOST_PROMPTS:
        raise InputError(f"{path.name} has {len(prompts):,} prompts; give at most {MOST_PROMPTS:,}.")
    for prompt in prompts:
        if len(prompt.text) > LONGEST_PROMPT:
            raise InputError(
                f"{prompt.place}: {len(prompt.text):,} characters are too long; a prompt has at most {LONGEST_PROMPT:,}."
            )
    return PromptSet(
        path.name.encode(errors="replace").decode(), tuple(prompts)
    )  # a name may contain bytes that are not text


def _folder(path: Path) -> Iterator[Prompt]:
    for file in sorted(path.glob("*.txt")):
        text = _decode(_bytes(file), file.name)
        if not text.strip():
            raise InputError(f"{file.name}: empty; give it some text or take it out of the folder.")
        yield Prompt(text.rstrip("\r\n"), file.name)


def _lines(path: Path) -> Iterator[Prompt]:
    for number, line in enumerate(_bytes(path).split(b"\n"), 1):
        place = f"{path.name}, line {number}"
        text = _decode(line, place).rstrip("\r")
        if text.strip():
            yield Prompt(_json_prompt(text, place) if path.suffix.lower() == ".jsonl" else text, place)


def _bytes(path: Path) -> bytes:
    if path.stat().st_size > LARGEST_FILE:
        raise InputError(f"{path.name} is larger than {LARGEST_FILE // 2**20} MB; give a smaller file.")
    return path.read_bytes()


def _decode(data: bytes, place: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{place}: not text in UTF-8; save the file as plain text in UTF-8.") from None
    if "\0" in text:
        raise InputError(f"{place}: zero bytes are not text; save the file as plain text in UTF-8.")
    return text


def _json_prompt(line: str, place: str) -> str:
    try:
        prompt = json.loads(line)["prompt"]
        prompt.encode()  # a lone surrogate is not text
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        prompt = None
    if not isinstance(prompt, str) or not prompt.strip():
        raise InputError(f'{place}: must be a JSON object with a text as "prompt", such as {{"prompt": "Once"}}.')
    return prompt
