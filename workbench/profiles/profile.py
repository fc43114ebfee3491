"""How many tokens a method's rounds write, by draft length and category (Profile).

Everywhere here an acceptance length counts the token that the target adds: it is the mean number
of tokens that a verification writes, 1 if every draft is refused. So do vLLM's
`synthetic_acceptance_length` and InferenceX's golden curves.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from decoders.errors import InputError, quoted, refuse

FORMAT: Final = "decoding-workbench profile"
LARGEST_FILE = 2**20  # bytes
LONGEST = 1024  # draft tokens
SLACK = 0.011  # lengths in files are rounded to hundredths
LONGEST_NAME = 200  # characters
Text = Annotated[str, Field(max_length=LONGEST_NAME)]


@dataclass(frozen=True, slots=True)
class Point:
    """What a method's rounds wrote at one draft length.

    Only rounds with a draft count, as in the counters of servers.

    Attributes:
        draft_length: the most draft tokens in a row
        length: the acceptance length
        rates: for each place of the draft, the share of rounds that accepted all tokens up to it;
            () if it is not known
        drafted: mean draft tokens of a round: more than `draft_length` in trees, fewer if some
            drafts are short; None if it is not known
        share: the share of all rounds that had a draft
        rounds: number of rounds that were counted; None if it is not known
        tree: whether drafts may branch although they have no more than `draft_length` tokens
    """

    draft_length: Annotated[int, Field(ge=1, le=LONGEST)]
    length: Annotated[float, Field(ge=1, le=LONGEST + 1)]
    rates: tuple[Annotated[float, Field(ge=0, le=1)], ...] = ()
    drafted: Annotated[float, Field(gt=0, le=LONGEST)] | None = None
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    rounds: Annotated[int, Field(ge=1, le=2**53)] | None = None
    tree: bool = False

    def __post_init__(self) -> None:
        rates, where = self.rates, f"At draft length {self.draft_length}"
        refuse(
            (
                self.length > self.draft_length + 1,
                f"{where} an acceptance length of {self.length:g} is too long: it counts the "
                "target's token, so it is at most one more than the draft.",
            ),
            (
                rates and len(rates) != self.draft_length,
                f"{where} there are {len(rates)} rates; give one for each draft token.",
            ),
            (
                any(later > earlier for earlier, later in pairwise(rates)),
                f"{where} the rates grow; each is the share of rounds that accepted all tokens up "
                "to its place.",
            ),
            (
                rates and abs(1 + sum(rates) - self.length) > SLACK,
                f"{where} the acceptance length is not 1 and the sum of the rates.",
            ),
        )

    @property
    def tokens(self) -> float:
        """Tokens that a verification scores: the draft, and the one before it."""
        return 1 + (self.drafted or self.draft_length)


@dataclass(frozen=True, slots=True)
class Curve:
    """A method on the texts of one category.

    Attributes:
        method: its name, with the settings that tell it from others
        category: that of the prompts
        points: what it wrote, by draft length from the shortest on
    """

    method: Text
    category: Text
    points: Annotated[tuple[Point, ...], Field(min_length=1, max_length=LONGEST)]

    def __post_init__(self) -> None:
        lengths = [point.draft_length for point in self.points]
        refuse(
            (
                lengths != sorted(set(lengths)),
                f"{self.named} must have each draft length once, from the shortest on.",
            )
        )

    @property
    def named(self) -> str:
        return f"{self.method}, {self.category}"

    def at(self, draft_length: int) -> Point:
        """The point of a draft length; raises InputError if there is none."""
        known = {point.draft_length: point for point in self.points}
        if draft_length not in known:
            raise InputError(
                f"{self.named} has no draft length {quoted(draft_length)}; it has "
                f"{', '.join(map(str, known))}."
            )
        return known[draft_length]


@dataclass(frozen=True, slots=True)
class Profile:
    """The curves of some methods.

    Attributes:
        source: where they were measured
        target: the target model; "" if it is not known
        draft: the draft model; likewise
        temperature: of the sampling; None if it is not known
        curves: the curves
        format: marks the file
        version: of the format
    """

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    source: Text
    target: Text
    draft: Text
    temperature: Annotated[float, Field(ge=0, le=100)] | None
    curves: Annotated[tuple[Curve, ...], Field(min_length=1, max_length=1000)]
    format: Literal["decoding-workbench profile"] = FORMAT
    version: Literal[1] = 1

    def dumps(self) -> str:
        return json.dumps(_PROFILE.dump_python(self, mode="json"), indent=1, ensure_ascii=False)

    def curve(self, method: str | None = None, category: str | None = None) -> Curve:
        """The only curve of a method and a category, each None if there is only one.

        Raises:
            InputError: with the curves that there are, if it is not exactly one
        """
        found = [
            curve
            for curve in self.curves
            if method in (None, curve.method) and category in (None, curve.category)
        ]
        if len(found) == 1:
            return found[0]
        raise InputError(
            f"{'No curve fits' if not found else 'Several curves fit'}; name one with --method and "
            f"--category: {listed(self.curves)}."
        )


def listed(curves: Sequence[Curve]) -> str:
    """A few curves by their names."""
    names = [f"“{curve.method}” “{curve.category}”" for curve in curves[:8]]
    return "; ".join([*names, "…"] if len(curves) > 8 else names)


def loads(data: Any) -> Profile:
    """The profile in the JSON of its file.

    Raises:
        InputError: with the first field that cannot be used
    """
    return validated(_PROFILE, data, "profile")


def validated(adapter: TypeAdapter[Any], data: Any, kind: str) -> Any:
    """The data in this shape.

    Args:
        adapter: the shape
        data: JSON
        kind: the name of the file's kind, for messages

    Raises:
        InputError: with the first field that cannot be used
    """
    try:
        return adapter.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, InputError):
            raise cause from None
        raise InputError(
            f"This {kind} cannot be used: {where[:80]}: {first['msg'].lower()}."
        ) from None


_PROFILE = TypeAdapter(Profile)
