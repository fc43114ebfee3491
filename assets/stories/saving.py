"""Files and folders that are either whole or not there."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path` to write a file or fill a folder at; moved into place only if all went well.

    OSError, with a sentence that names the remedy, if it could not be written; nothing half-written is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield draft
        if path.is_dir():  # a folder can not be replaced in one call: the old one steps aside first
            old = path.with_name(f".{path.name}.{os.getpid()}.old")
            os.replace(path, old)
            os.replace(draft, path)
            shutil.rmtree(old)
        else:
            os.replace(draft, path)
    except (OSError, SafetensorError, RuntimeError) as error:  # torch.save reports a full disk as a RuntimeError
        full = (
            getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
            or shutil.disk_usage(path.parent).free < 1 << 20
        )
        reason = "the disk is full: free some space" if full else f"{error}: mend that"
        raise OSError(f"Could not write {path}; {reason} and run the same command again, it resumes.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True) if draft.is_dir() else draft.unlink(missing_ok=True)
