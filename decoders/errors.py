"""The errors that callers see, and the checks of their numbers, truth values and choices.

A setting is a dataclass field that carries its range and its help.
"""

import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from importlib.util import find_spec
from typing import Any, TypeGuard

import numpy as np

QUOTED = 80  # characters
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = QUOTED


class InputError(ValueError):
    """Input that cannot be used; the message is one sentence that names the fix."""


class NotPackedError(InputError):
    """A model that packed passes do not support.

    The message is the reason, as a clause: "it has its own attention".
    """


class ModelError(RuntimeError):
    """A model's output is not a distribution; the message names the model and the step."""


def refuse(*cases: tuple[object, str]) -> None:
    """Raise InputError for the first of some cases that holds.

    Args:
        cases: each a condition, and the sentence for when it is true
    """
    for holds, sentence in cases:
        if holds:
            raise InputError(sentence)


def first_line(error: BaseException) -> str:
    """The first line of a foreign error's message, or the name of its type if it has no message."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def quoted(value: object) -> str:
    """A caller's value for a message: on one line, at most QUOTED characters, whatever its size."""
    try:
        text = _SHORT.repr(value).replace("\n", " ")
        return text if len(text) <= QUOTED else f"{text[: QUOTED - 1]}…"
    # An object's own repr may fail, and Python refuses whole numbers of more than 4,300 digits.
    except Exception:
        return f"a value of type {type(value).__name__}"


def plain(value: Any) -> Any:
    """A number, truth value or text of NumPy as Python's own; anything else unchanged."""
    return value.item() if isinstance(value, (np.number, np.bool_, np.str_)) else value


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether this is a whole number, NumPy's included; True and False are not."""
    return isinstance(plain(value), int) and not isinstance(value, bool)


def allowed(
    name: str,
    value: Any,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[Any] = (),
) -> Any:
    """The value of an option, as Python's own type.

    Args:
        low: least number; True and False are no numbers
        high: greatest number; only whole numbers are allowed if the bounds are whole
        choices: values allowed besides the range, or instead of one

    Raises:
        InputError: for any other value, whatever its type
    """
    own = plain(value)
    for choice in choices:
        # True is no 1, and 1 is no True.
        if isinstance(own, bool) == isinstance(choice, bool) and (
            isinstance(own, type(choice)) and own == choice
        ):
            return own
    options = [repr(choice) for choice in choices]
    kind: Any = int if isinstance(high if low is None else low, int) else (int, float)
    ranges = low is not None or high is not None
    if ranges:
        number = isinstance(own, kind) and not isinstance(own, bool)
        if number and (low is None or own >= low) and (high is None or own <= high):
            return own
        options.append(f"a {'whole ' if kind is int else ''}number {_bounds(low, high)}")
    words = " or ".join(filter(None, [", ".join(options[:-1]), options[-1]]))
    # A Fraction, an array or a tensor.
    numeric = ranges and hasattr(type(own), "__float__") and not isinstance(own, (int, float))
    hint = f"; give an int{'' if kind is int else ' or a float'}" if numeric else ""
    raise InputError(f"{name} must be {words}, not {quoted(value)}{hint}.")


def _bounds(low: float | None, high: float | None) -> str:
    if high is None:
        return f"of {low} or more"
    return f"of at most {high}" if low is None else f"from {low} to {high}"


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Iterable[Any] = (),
    read: Callable[[str, Any], Any] | None = None,
) -> Any:
    """A dataclass field with one line of help and its allowed values.

    Args:
        default: the default value
        help: one line for a user
        low: the least number
        high: the greatest number
        choices: values allowed besides a range, or instead of one
        read: replaces the range and choices: a function of (name of the decoder, caller's value)
            that returns the value to keep or raises InputError
    """
    return field(
        default=default,
        metadata={"help": help, "low": low, "high": high, "choices": tuple(choices), "read": read},
    )


def flag(name: str, value: Any) -> bool:
    """True or False; InputError for texts such as "false", which would count as true."""
    return allowed(name, value, choices=(True, False))


def whole(name: str, value: Any, most: int) -> int:
    """A whole number from 1 to `most`, or InputError."""
    return allowed(name, value, 1, most)


def installed(packages: Sequence[str], needs: str) -> None:
    """Raise InputError, which begins with `needs`, if some of the packages are not installed."""
    if missing := [package.replace("_", "-") for package in packages if find_spec(package) is None]:
        raise InputError(
            f"{needs} {' and '.join(missing)}; install with `pip install {' '.join(missing)}`."
        )
