"""Files and folders that are either whole or not there."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError


class NotWritten(OSError):
    """A sentence that names the file that could not be written, why, and what to do about it."""


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Give a temporary path for a file or folder, and move it into place only if all went well.

    Args:
        path: where the file or folder will be

    Yields:
        a path beside `path` to write a file or fill a folder at

    Raises:
        NotWritten: if it could not be written; nothing half-written is left
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft, old = (path.with_name(f".{path.name}.{kind}") for kind in ("part", "old"))
    remove(draft)  # what a killed run left
    try:
        yield draft
        if path.is_dir():  # a folder can not be replaced in one call: the old one steps aside first
            os.replace(path, old)
            os.replace(draft, path)
            remove(old)
        else:
            os.replace(draft, path)
    except NotWritten:
        raise
    except (OSError, SafetensorError, RuntimeError) as error:
        # torch.save reports a full disk as a RuntimeError
        full = (
            getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
            or shutil.disk_usage(path.parent).free < 1 << 20
        )
        reason = "the disk is full: free some space" if full else f"{error}: mend that"
        raise NotWritten(
            f"Could not write {path}; {reason} and run the same command again, it resumes."
        ) from error
    finally:
        remove(draft)


def remove(path: Path) -> None:
    """Removes a file or folder if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
