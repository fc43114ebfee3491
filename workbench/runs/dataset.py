"""Runs that outlive a Space: one file each in a dataset repository of the Hugging Face hub.

A Space forgets its disk when it restarts. Where WORKBENCH_RUNS names a dataset, every run is also
written into a folder that `huggingface_hub.CommitScheduler` uploads, and a run that is not on the
disk is looked up there, so links go on working. What could not be uploaded stays in the folder, and
the next attempt takes it along, after a restart of the process too.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from huggingface_hub import CommitScheduler, HfApi, hf_hub_url
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    HTTPError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

from decoders import InputError
from decoders.errors import first_line, quoted
from workbench.runs.record import LARGEST_FILE, Run

VARIABLE = "WORKBENCH_RUNS"
MINUTES = 5.0  # between two uploads
SECONDS = 15.0  # that a visitor waits for the hub
FOLDER = "runs"  # in the dataset
ID = re.compile(r"[0-9a-f]{1,64}")


class Dataset:
    """A dataset repository that keeps runs.

    It is made, private, if it is not there yet.

    Args:
        name: USER/NAME
        token: a token of the hub that may write to it
        endpoint: the hub's address, by default that of HF_ENDPOINT

    Raises:
        InputError: in one sentence, if it cannot be used
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        token: str | None,
        minutes: float = MINUTES,
        endpoint: str | None = None,
    ):
        self.name, self.folder = name, folder
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise InputError(f"{VARIABLE} must name a dataset as USER/NAME, not {quoted(name)}.")
        if not token:
            raise InputError(
                f"{VARIABLE} names the dataset {name}, which needs the secret HF_TOKEN: a token "
                "that may write to it."
            )
        self.hub = HfApi(token=token, endpoint=endpoint)
        try:
            self.uploads = CommitScheduler(
                repo_id=name,
                repo_type="dataset",
                folder_path=folder,
                path_in_repo=FOLDER,
                every=minutes,
                private=True,
                hf_api=self.hub,
                allow_patterns="*.json",
            )
        except (HfHubHTTPError, HTTPError, OSError) as error:
            raise InputError(
                f"The dataset {name} of {VARIABLE} cannot be used ({first_line(error)}); check its "
                "name, and that HF_TOKEN may write to it."
            ) from None

    @classmethod
    def from_environment(
        cls, folder: Path, environ: Mapping[str, str] = os.environ
    ) -> "Dataset | None":
        """The dataset that WORKBENCH_RUNS names, None if it names none."""
        name = environ.get(VARIABLE, "").strip()
        return cls(name, folder, environ.get("HF_TOKEN")) if name else None

    def keep(self, run: Run) -> None:
        """Let a run be uploaded; it replaces one with the same id.

        Raises:
            InputError: if it cannot be written to the folder
        """
        file = self.folder / f"{run.id}.json"
        try:
            with self.uploads.lock:  # no upload lists a file that is half written
                file.write_text(run.dumps(), "utf-8")
        except OSError as error:
            raise InputError(
                f"The run {run.id} cannot wait in {self.folder} for its upload "
                f"({first_line(error)}); make room on the disk."
            ) from None

    def find(self, id: str) -> Run | None:
        """A run of the dataset, None if there is none.

        Raises:
            InputError: if the hub does not answer, or if the run is damaged
        """
        content = fetched(self.hub, self.name, id)
        return None if content is None else Run.from_json(content)

    def forget(self, id: str) -> None:
        """Take a run out of the dataset.

        Raises:
            InputError: if the hub does not answer
        """
        with self.uploads.lock:
            (self.folder / f"{id}.json").unlink(missing_ok=True)
        try:
            self.hub.delete_file(f"{FOLDER}/{id}.json", self.name, repo_type="dataset")
        except EntryNotFoundError:
            pass  # it was not uploaded yet
        except (HfHubHTTPError, HTTPError, OSError) as error:
            raise InputError(
                f"The run {id} stays in the dataset {self.name}, which does not answer "
                f"({first_line(error)}); delete the file {FOLDER}/{id}.json there."
            ) from None


def fetched(hub: HfApi, name: str, id: str) -> bytes | None:
    """The file of a run in a dataset, None if there is none.

    Raises:
        InputError: if the hub does not answer, or if the file is too large
    """
    if not ID.fullmatch(id):
        return None
    try:  # one request: hf_hub_download would try for half a minute while a visitor waits
        with get_session().stream(
            "GET",
            hf_hub_url(name, f"{FOLDER}/{id}.json", repo_type="dataset", endpoint=hub.endpoint),
            headers=build_hf_headers(token=hub.token),
            follow_redirects=True,
            timeout=SECONDS,
        ) as answer:
            hf_raise_for_status(answer)
            content = b""
            for part in answer.iter_bytes():
                content += part
                if len(content) > LARGEST_FILE:
                    raise InputError(f"The run {id} in the dataset {name} is too large to open.")
    except (EntryNotFoundError, RepositoryNotFoundError):
        return None
    except (HfHubHTTPError, HTTPError, OSError) as error:
        raise InputError(
            f"The run {id} is not on this machine, and the dataset {name} does not answer "
            f"({first_line(error)}); try again later."
        ) from None
    return content
