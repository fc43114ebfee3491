"""A visitor's own runs, in a dataset of the visitor's on the Hugging Face hub (OwnRuns)."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from huggingface_hub import HfApi
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    HTTPError,
    RepositoryNotFoundError,
)
from huggingface_hub.hf_api import RepoFile

from decoders import InputError
from decoders.errors import first_line
from workbench.runs.dataset import FOLDER, ID, fetched
from workbench.runs.record import Run

NAME = "decoding-workbench-runs"
SECONDS = 60.0  # that a visitor's upload or list may take
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Entry:
    """A run of the list.

    Attributes:
        id: its id
        created: when it was put there
        kind: its kind
        title: its title
    """

    id: str
    created: datetime | None
    kind: str
    title: str


class OwnRuns:
    """The runs of a visitor who has signed in, a file each in the dataset OWNER/NAME.

    Args:
        owner: the visitor's account
        token: of that account
        endpoint: the hub's address, by default that of HF_ENDPOINT
    """

    def __init__(self, owner: str, token: str, endpoint: str | None = None):
        self.name = f"{owner}/{NAME}"
        self.hub = HfApi(token=token, endpoint=endpoint)

    def keep(self, run: Run) -> None:
        """Put a run there; the dataset is made, private, if it is not there yet.

        Raises:
            InputError: if the hub refuses, or does not answer
        """

        def upload() -> None:
            self.hub.create_repo(self.name, repo_type="dataset", private=True, exist_ok=True)
            self.hub.upload_file(
                path_or_fileobj=run.dumps().encode(),
                path_in_repo=f"{FOLDER}/{run.id}.json",
                repo_id=self.name,
                repo_type="dataset",
                commit_message=f"{run.kind}: {run.title}",
            )

        try:
            self._in_time(upload)
        except (HfHubHTTPError, HTTPError, OSError) as error:
            raise InputError(
                f"This run could not be kept in your dataset {self.name} ({first_line(error)}); "
                "download it instead, or sign in again."
            ) from None

    def find(self, id: str) -> bytes | None:
        """The file of a run of theirs, which may have any content; None if there is none.

        Raises:
            InputError: if the hub does not answer, or if the file is too large
        """
        return fetched(self.hub, self.name, id)

    def list(self) -> list[Entry]:
        """What is there, newest first.

        Raises:
            InputError: if the hub does not answer
        """
        tree = self.hub.list_repo_tree
        try:
            files = self._in_time(
                lambda: [*tree(self.name, FOLDER, expand=True, repo_type="dataset")]
            )
        except (EntryNotFoundError, RepositoryNotFoundError):
            return []
        except (HfHubHTTPError, HTTPError, OSError) as error:
            raise InputError(
                f"Your dataset {self.name} does not answer ({first_line(error)}); try again later."
            ) from None
        entries = []
        for file in files:
            id = file.path.removeprefix(f"{FOLDER}/").removesuffix(".json")
            if isinstance(file, RepoFile) and ID.fullmatch(id):
                last = file.last_commit
                kind, _, title = (last.title if last else "").partition(": ")
                entries.append(Entry(id, last.date if last else None, kind, title))
        return sorted(entries, key=lambda e: e.created or LONG_AGO, reverse=True)

    def _in_time(self, call: Callable[[], Answer]) -> Answer:
        """The answer of a call to the hub, which sets itself no limit; raises TimeoutError."""
        return self.hub.run_as_future(call).result(timeout=SECONDS)
