"""Gradio prints a traceback for each request that it cannot read, so that anybody fills the server's log: those become one line."""

import logging
import sys
import traceback as real
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gradio import queueing, route_utils, routes, utils

OURS = Path(__file__).resolve().parents[2]
log = logging.getLogger(__name__)


def print_exc(*args: Any, **options: Any) -> None:
    """In place of `traceback.print_exc`: the whole traceback of what broke in this project, a line for what Gradio refused."""
    error = sys.exception()
    frames = real.extract_tb(error.__traceback__) if error is not None else []
    if any(Path(frame.filename).is_relative_to(OURS) for frame in frames):
        real.print_exc(*args, **options)
    else:
        log.warning("a request was refused: %s: %.200s", type(error).__name__, ascii(str(error)))


def encodable(error: BaseException | None, show_error: bool) -> dict[str, bool | str | float | None]:
    """In place of `error_payload`: half a character that a client sent and Gradio repeats cannot be sent back."""
    found = payload(error, show_error)
    return {k: v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for k, v in found.items()}


payload = utils.error_payload


def shorten() -> None:
    """Gradio's own modules print through the first function above, and answer through the second."""
    utils.error_payload = queueing.error_payload = encodable
    quiet = SimpleNamespace(**{**vars(real), "print_exc": print_exc})
    for module in (routes, queueing, route_utils):
        setattr(module, "traceback", quiet)  # noqa: B010 - a module of Gradio's does not say that it has one
