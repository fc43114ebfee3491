"""The base of all decoders (Method): the law that it claims for its output, and its settings.

Settings are frozen dataclass fields that carry their range and their help. They are checked when
the decoder is built.
"""

import dataclasses
import difflib
from collections.abc import Generator, Iterable
from enum import StrEnum
from typing import Any, ClassVar, Literal, NamedTuple, Self

from decoders.distribution import Warping
from decoders.errors import InputError, allowed, quoted
from decoders.errors import setting as setting
from decoders.request import Ask, Request
from decoders.trace import Round

# The type of `decode`. A yielded item determines what is sent back, which no type can express:
# readings (`list[Reading]`) for an ask, tokens (`list[Draw]`) for a chain, None for a round.
Decoding = Generator[Ask | Round, Any, None]


class Law(StrEnum):
    """A law of the output; as a text, its name in files, links and decoders of other packages."""

    TARGET = "target"
    BEAM_SAMPLING = "beam sampling"
    PER_LAYER = "beam sampling per layer"
    BEAM_SEARCH = "beam search"
    CASCADE = "cascade"
    ENSEMBLE = "ensemble"

    @property
    def words(self) -> str:
        """Words that complete "text distributed as"."""
        return {
            Law.TARGET: "the target",
            Law.PER_LAYER: "beam sampling, given each layer's width",
            Law.CASCADE: "the draft model where the target finds it good enough",
            Law.ENSEMBLE: "the weighted mean of both models",
        }.get(self, self.value)

    @property
    def tested(self) -> Literal["target", "first step", "own"]:
        """The distribution that draws can be tested against.

        It is the target's of texts, or beam sampling's of the beams of the first step; "own" if
        such tests know neither.
        """
        if self.mixed or self.certain:
            return "own"
        return "target" if self is Law.TARGET else "first step"

    @property
    def certain(self) -> bool:
        """Whether it leaves nothing to chance: one text, at every temperature, and not greedy's."""
        return self is Law.BEAM_SEARCH

    @property
    def mixed(self) -> bool:
        """Whether it is a mixture of target and draft model, and so not lossless."""
        return self in (Law.CASCADE, Law.ENSEMBLE)


class Criterion(NamedTuple):
    """By what a draft token is kept or refused, for people.

    Attributes:
        says: a sentence; "" if a random number below p / q decides
        threshold: the number that `measure` must exceed, None if a random number decides
        at_most: whether the real threshold may be lower
        measure: "p" or "ratio" (the joint ratio of the draft up to this token)
        raw: whether a draft's p is its probability before temperature and cut-offs
    """

    says: str = ""
    threshold: float | None = None
    at_most: bool = False
    measure: Literal["p", "ratio"] = "p"
    raw: bool = False


class claim(property):
    """A property that depends on the settings; on the class, its value for the default settings."""

    def __get__(self, method: "Checked | None", owner: "type[Checked]") -> Any:  # type: ignore[override]  # of settings alone
        return super().__get__(owner() if method is None else method, owner)


class Checked:
    """The base of every frozen dataclass of settings, each checked when one is built.

    Attributes:
        name: its name in links, files and messages

    Raises:
        InputError: for unknown settings, and for values out of range
    """

    name: ClassVar[str]
    # For type checkers: every heir is a dataclass.
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        known = [field.name for field in dataclasses.fields(cls)]
        for name in settings:
            if name not in known:
                raise InputError(
                    f"{cls.name} has no setting {quoted(name)}: {nearest(name, known)}"
                )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, check(self.name, field, getattr(self, field.name)))


class Method(Checked):
    """The base of every decoder: a frozen dataclass of settings with its claims and `decode`.

    Attributes:
        title: its proper name
        stands_for: what the title abbreviates
        law: the law of the output, or None (lossy)
        paper: the paper that defines it
        section: the section of the paper
        summary: one line for a reader who knows no decoder
        uses_draft: whether it needs a draft model
        uses_head: whether it needs a head of the target
        references: texts that its drafts may copy from, if it has such a setting
    """

    title: ClassVar[str]
    stands_for: ClassVar[str] = ""
    law: ClassVar[Law | None]
    paper: ClassVar[str]
    section: ClassVar[str]
    summary: ClassVar[str]
    uses_draft: ClassVar[bool] = False
    uses_head: ClassVar[bool] = False
    references: tuple[str, ...] = ()

    @property
    def lossless(self) -> bool:
        return self.law is not None and not Law(self.law).mixed

    @property
    def plain(self) -> "Method":
        """The decoder whose tokens it gives at any temperature; itself, if there is none."""
        return self

    @property
    def criterion(self) -> Criterion:
        return Criterion()

    def warping(self, warping: Warping) -> Warping:
        """The warping that this decoder really uses, given the caller's."""
        return warping

    @property
    def branches(self) -> tuple[int, int]:
        """The most tips between rounds, and the most nodes that a round adds; (1, 0) for chains."""
        return 1, 0

    def most_rows(self, prompt: int, budget: int) -> int:
        """The most cache rows of either model that a request can take, for a memory budget.

        A chain needs one row per token. With branches there are, between rounds, at most twice as
        many rows as live nodes (`CacheRows.sync`).

        Args:
            prompt: tokens of the prompt
            budget: most new tokens
        """
        tips, nodes = self.branches
        return 2 * (prompt + tips * budget) + nodes if nodes else prompt + budget

    def refuse(self, vocabulary: int, budget: int) -> None:
        """Refuse a task that these settings cannot do.

        Args:
            vocabulary: V
            budget: most new tokens

        Raises:
            InputError: if they cannot decode this many tokens with such a vocabulary
        """

    def decode(self, request: Request) -> Decoding:
        # Every method has its own.
        raise TypeError(f"{type(self).__name__} does not decode.")  # pragma: no cover


def check(owner: str, field: dataclasses.Field, value: Any) -> Any:
    """The value that a setting keeps for a caller's value.

    Raises:
        InputError: if the value is not allowed
    """
    low, high, choices, read = (field.metadata[key] for key in ("low", "high", "choices", "read"))
    if read is not None:
        return read(owner, value)
    if low is None and high is None and not choices:
        return value
    return allowed(f"{owner}: {field.name}", value, low, high, choices)


def shared(part: type[Checked], name: str) -> Any:
    """The setting of a source or a rule, for a decoder or another source that has it too."""
    return part.__dataclass_fields__[name]


def nearest(word: str, words: Iterable[str]) -> str:
    """A hint for a message about an unknown name: the nearest known name, or else all names."""
    words = list(words)
    close = difflib.get_close_matches(word[:80], words, 1)
    return f"did you mean {close[0]!r}?" if close else f"there is {', '.join(words) or 'none'}."
