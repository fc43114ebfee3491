"""The errors that callers see."""

import reprlib

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
