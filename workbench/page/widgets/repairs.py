"""Repairs of Gradio: its tracebacks in the log, and failed uploads that it leaves on the disk.

It prints a traceback for each request that it cannot read, so that anybody could fill the server's
log; here each is one line.
"""

import logging
import sys
import traceback as real
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fastapi import HTTPException
from gradio import queueing, route_utils, routes, utils
from starlette.requests import Request
from starlette.responses import JSONResponse

AROUND_GRADIO = Path(__file__).resolve().parent
OURS = AROUND_GRADIO.parents[1]
log = logging.getLogger(__name__)


def print_exc(*args: Any, **options: Any) -> None:
    """In place of `traceback.print_exc`: a line for a request that Gradio refused.

    An error in this project still has its whole traceback.
    """
    error = sys.exception()
    frames = real.extract_tb(error.__traceback__) if error is not None else []
    files = [Path(frame.filename) for frame in frames]
    if any(file.is_relative_to(OURS) and not file.is_relative_to(AROUND_GRADIO) for file in files):
        real.print_exc(*args, **options)
    else:
        log.warning("a request was refused: %s: %.200s", type(error).__name__, ascii(str(error)))


def encodable(
    error: BaseException | None, show_error: bool
) -> dict[str, bool | str | float | None]:
    """In place of `error_payload`, which may repeat half a character; that cannot be sent back."""
    return {
        k: v.encode("utf-8", "replace").decode() if isinstance(v, str) else v
        for k, v in payload(error, show_error).items()
    }


async def unread(request: Request, error: Exception) -> JSONResponse:
    """The answer to a body that Gradio cannot read.

    FastAPI's own answer repeats the body, and cannot send half a character back.
    """
    return JSONResponse({"detail": "This request cannot be read."}, 422)


def handler(*asked: Any, **named: Any) -> Any:
    """In place of `get_fn`, whose error for an unknown handler nobody catches."""
    try:
        return get_fn(*asked, **named)
    except (KeyError, route_utils.FnIndexInferError):
        raise HTTPException(404, "The page has no such handler; reload it.") from None


class TidyParser(route_utils.GradioMultiPartParser):
    """Removes files that Gradio leaves: half a file of a sender who left, and unexpected parts."""

    async def parse(self) -> Any:
        kept: set[str] = set()
        try:
            form = await super().parse()
            kept = {
                each.file.name
                for name, each in form.multi_items()
                if name == "files" and not isinstance(each, str)
            }
            return form
        except OSError as error:  # a full disk, for example
            raise route_utils.MultiPartException(
                f"The file cannot be stored: {error.strerror or error}."
            ) from None
        finally:
            for file in self._files_to_close_on_error:
                if file.name not in kept:
                    file.close()
                    Path(file.name).unlink(missing_ok=True)


payload, get_fn = utils.error_payload, route_utils.get_fn


def install() -> None:
    """Make Gradio's modules print, answer and read uploads through what stands above."""
    utils.error_payload = queueing.error_payload = encodable
    route_utils.get_fn = handler
    route_utils.GradioMultiPartParser = TidyParser  # type: ignore[misc]  # there is no setting for it
    quiet = SimpleNamespace(**{**vars(real), "print_exc": print_exc})
    for module in (routes, queueing, route_utils):
        # mypy does not know that Gradio's modules have it.
        setattr(module, "traceback", quiet)  # noqa: B010
