"""Settings of a decoder: frozen dataclass fields that carry their range and their help, checked when built."""

import dataclasses
import difflib
from collections.abc import Callable, Generator, Iterable
from typing import Any, ClassVar

from decoders.errors import InputError
from decoders.request import Ask, Request
from decoders.shapes import Logits
from decoders.trace import Round
from decoders.warp import Warping

Decoding = Generator[
    Ask | Round, Logits | None, None
]  # what `decode` is: asks are answered with logits, rounds with None


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Iterable[Any] = (),
    read: Callable[[str, Any], Any] | None = None,
) -> Any:
    """A dataclass field with one line of help and the values it may take: from `low` to `high`, or one of `choices`, or both; or
    whatever `read(name of the decoder, value)` returns, which raises InputError for what it cannot read."""
    return dataclasses.field(
        default=default, metadata={"help": help, "low": low, "high": high, "choices": tuple(choices), "read": read}
    )


class claim(property):
    """A property of the settings; asked of a class, the answer for its default settings."""

    def __get__(self, method, owner=None):
        return super().__get__(owner() if method is None else method, owner)


class Method:
    """What every decoder is: a frozen dataclass of settings, class attributes that say what it claims, and `decode`.

    law          the law of the output: "target", "beam sampling", "beam sampling per layer", or None (lossy)
    paper, section   where it is defined;  summary  one line for a reader who knows none of them
    uses_draft   whether it needs a draft model
    references   texts that its drafts may copy from, a setting of those that look things up
    """

    name: ClassVar[str]
    law: ClassVar[str | None]
    paper: ClassVar[str]
    section: ClassVar[str]
    summary: ClassVar[str]
    uses_draft: ClassVar[bool] = False
    references = ()

    def __new__(cls, *args, **settings):
        known = [field.name for field in dataclasses.fields(cls)]
        for name in settings:
            if name not in known:
                raise InputError(f"{cls.name} has no setting {name!r}: {nearest(name, known)}")
        return super().__new__(cls)

    def __post_init__(self):
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, check(self.name, field, getattr(self, field.name)))

    @property
    def lossless(self) -> bool:
        return self.law is not None

    def warping(self, warping: Warping) -> Warping:
        """The warping this method really uses, given the caller's."""
        return warping

    @property
    def branches(self) -> tuple[int, int]:
        """How many tips live between rounds at most, and how many nodes a round adds at most; (1, 0) stands for chains."""
        return 1, 0

    def most_rows(self, prompt: int, budget: int) -> int:
        """Cache rows of either model that a request of so many tokens can take at most: what a memory budget reserves for it.

        A chain has a row a token. With branches the rows between rounds are at most twice the live ones (`CacheRows.sync`).
        """
        tips, nodes = self.branches
        return 2 * (prompt + tips * budget) + nodes if nodes else prompt + budget

    def refuse(self, vocabulary: int, budget: int) -> None:
        """Raise InputError if these settings cannot write `budget` tokens of such a vocabulary."""

    def decode(self, request: Request) -> Decoding:
        raise TypeError(f"{type(self).__name__} does not decode.")  # pragma: no cover - every method has its own


def check(owner: str, field: dataclasses.Field, value: Any) -> Any:
    """The value that a `setting` of `owner` keeps if it is given this one. Raises InputError if it may not take it."""
    low, high, choices, read = (field.metadata[key] for key in ("low", "high", "choices", "read"))
    if read is not None:
        return read(owner, value)
    if any(value == c and isinstance(value, bool) == isinstance(c, bool) for c in choices):
        return value
    options = [repr(c) for c in choices]
    if low is not None or high is not None:
        options.append(f"a {'whole ' if isinstance(low, int) else ''}number from {low} to {high}")
        is_number = isinstance(value, int if isinstance(low, int) else (int, float)) and not isinstance(value, bool)
        if is_number and low <= value <= high:
            return value
    elif not choices:
        return value
    raise InputError(f"{owner}: {field.name} must be {' or '.join(options)}, not {value!r}.")


def nearest(word: str, words: Iterable[str]) -> str:
    """A hint for a message about an unknown name: the nearest one, or all of them."""
    words = list(words)
    close = difflib.get_close_matches(word, words, 1)
    return f"did you mean {close[0]!r}?" if close else f"there is {', '.join(words) or 'none'}."
