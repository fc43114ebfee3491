"""Uploaded files, read once and removed from the disk before a handler gets their content."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr


@dataclass(frozen=True)
class Given:
    """The name and the content of a visitor's file."""

    name: str
    content: bytes


class GivenFile(gr.File):
    """Gradio's box for a file, whose handlers get the content; nothing stays on the disk."""

    is_template = True  # to the browser it is Gradio's

    def preprocess(self, payload: Any) -> Given | None:  # type: ignore[override]  # what was in the file, not its name
        return _taken(payload)


class GivenButton(gr.UploadButton):
    """The same as a button."""

    is_template = True

    def preprocess(self, payload: Any) -> Given | None:  # type: ignore[override]  # what was in the file, not its name
        return _taken(payload)


def _taken(payload: Any) -> Given | None:
    if payload is None:
        return None
    path = Path(payload.path)
    try:
        return Given(path.name, path.read_bytes())
    except OSError:  # of two visitors who upload the same file at once, one comes late
        raise gr.Error("The file did not arrive; upload it again.", print_exception=False) from None
    finally:
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()  # it is named after the content
