"""Settings of a decoder: frozen dataclass fields that carry their range and their help, and are checked when the decoder is built."""

import dataclasses
import difflib
from collections.abc import Callable, Generator, Iterable
from typing import Any, ClassVar, Self

from decoders.errors import InputError
from decoders.request import Ask, Request
from decoders.trace import Round
from decoders.warp import Warping

# What `decode` returns. It is sent what each item asks for, which no type can say: of an ask readings (`list[Reading]`), of one for a
# chain its tokens (`list[Drawn]`), of a round None.
Decoding = Generator[Ask | Round, Any, None]


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Iterable[Any] = (),
    read: Callable[[str, Any], Any] | None = None,
) -> Any:
    """A dataclass field with one line of help and the values it may take: from `low` to `high`, one of `choices`, or either.

    read   instead of these, a function of (name of the decoder, value given) that returns the value kept or raises InputError
    """
    return dataclasses.field(
        default=default, metadata={"help": help, "low": low, "high": high, "choices": tuple(choices), "read": read}
    )


# The laws that a decoder may claim, each with a few words about its text.
LAWS = {
    "target": "the target",
    "beam sampling": "beam sampling",
    "beam sampling per layer": "beam sampling, given each layer's width",
}


class claim(property):
    """A property that depends on the settings; on the class itself it has the value for the default settings."""

    def __get__(self, method: "Method | None", owner: "type[Method]") -> Any:  # type: ignore[override]  # of methods alone
        return super().__get__(owner() if method is None else method, owner)


class Method:
    """What every decoder is: a frozen dataclass of settings, class attributes that say what it claims, and `decode`.

    name         its id in the catalog, in links and files;   title  its proper name;   stands_for  what that abbreviates
    law          the law of the output: one of LAWS, or None (lossy)
    paper, section   where it is defined;  summary  one line for a reader who knows no decoder
    uses_draft   whether it needs a draft model
    references   texts that its drafts may copy from, if it has such a setting
    Raises InputError for settings that it does not have, or out of range.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    stands_for: ClassVar[str] = ""
    law: ClassVar[str | None]
    paper: ClassVar[str]
    section: ClassVar[str]
    summary: ClassVar[str]
    uses_draft: ClassVar[bool] = False
    references: tuple[str, ...] = ()
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]  # for type checkers: every method is a dataclass

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        known = [field.name for field in dataclasses.fields(cls)]
        for name in settings:
            if name not in known:
                raise InputError(f"{cls.name} has no setting {name!r}: {nearest(name, known)}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, check(self.name, field, getattr(self, field.name)))

    @property
    def lossless(self) -> bool:
        return self.law is not None

    def warping(self, warping: Warping) -> Warping:
        """The warping that this decoder really uses, given the caller's."""
        return warping

    @property
    def branches(self) -> tuple[int, int]:
        """The most tips that live between rounds, and the most nodes that a round adds; (1, 0) for chains."""
        return 1, 0

    def most_rows(self, prompt: int, budget: int) -> int:
        """The most cache rows of either model that a request of so many tokens can take: what a memory budget reserves for it.

        A chain needs one row per token. With branches there are, between rounds, at most twice as many rows as live nodes
        (`CacheRows.sync`).
        """
        tips, nodes = self.branches
        return 2 * (prompt + tips * budget) + nodes if nodes else prompt + budget

    def refuse(self, vocabulary: int, budget: int) -> None:
        """Raise InputError if these settings cannot decode `budget` tokens with a vocabulary of this size."""

    def decode(self, request: Request) -> Decoding:
        raise TypeError(f"{type(self).__name__} does not decode.")  # pragma: no cover - every method has its own


def check(owner: str, field: dataclasses.Field, value: Any) -> Any:
    """The value that a `setting` of `owner` keeps when given this one. Raises InputError if it may not have it."""
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
    """A hint for a message about an unknown name: the nearest known one, or else all of them."""
    words = list(words)
    close = difflib.get_close_matches(word, words, 1)
    return f"did you mean {close[0]!r}?" if close else f"there is {', '.join(words) or 'none'}."
