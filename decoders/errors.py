"""The errors that callers see."""


class InputError(ValueError):
    """Input that cannot be used; the message is one sentence that names the fix."""


class NotPackedError(InputError):
    """A model that packed passes do not model; the message is the reason, as a clause: "it has its own attention"."""


class ModelError(RuntimeError):
    """A model's output is not a distribution; the message names the model and the step."""


def first_line(error: BaseException) -> str:
    """The first line of a foreign error's message, or its type if it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
