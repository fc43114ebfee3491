"""The two ways things go wrong."""


class InputError(ValueError):
    """Something the caller gave cannot be used; the message is one sentence that names the fix."""


class ModelError(RuntimeError):
    """A model answered with something that is no distribution; the message names the model and the step."""


def first_line(error: Exception) -> str:
    """What a foreign error says first, or its kind where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
