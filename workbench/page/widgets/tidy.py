"""Removes failed uploads from the disk."""

from pathlib import Path
from typing import Any

from gradio import route_utils


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


def install() -> None:
    route_utils.GradioMultiPartParser = TidyParser  # type: ignore[misc]  # Gradio has no setting for it
