"""The errors that callers see."""


class InputError(ValueError):
    """Input that cannot be used; the message is one sentence that names the fix."""


class ModelError(RuntimeError):
    """A model's output is not a distribution; the message names the model and the step."""
