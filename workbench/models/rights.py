"""Who may read a gated model: this machine's own account, or a visitor who has signed in."""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HTTPError,
    RepositoryNotFoundError,
)

from decoders import InputError
from decoders.errors import first_line

SECONDS = 600.0  # for which an answer of the hub holds


@dataclass(frozen=True)
class Account:
    """A visitor who has signed in with Hugging Face.

    Attributes:
        name: of the account
        token: reads and writes what the visitor has allowed
    """

    name: str
    token: str = field(repr=False)


class Rights:
    """What the hub says about who may read which model.

    Weights that one visitor has fetched lie on the disk and in memory, where others could use
    them; so the hub is asked for everybody.

    Args:
        endpoint: the hub's address, by default that of HF_ENDPOINT
        seconds: for which an answer holds
    """

    def __init__(self, endpoint: str | None = None, seconds: float = SECONDS):
        self.endpoint, self.seconds = endpoint, seconds
        self._allowed: dict[tuple[str, str | None], float] = {}  # when the hub said yes
        self._lock = threading.Lock()

    def token(self, models: Iterable[str], account: Account | None) -> str | None:
        """The token with which these models can be read: the account's, or None for the own one.

        Args:
            models: hub ids, with or without "@revision", and folders
            account: whoever asks for them, if that is known

        Raises:
            InputError: if one may not be read, or the hub does not answer
        """
        ids = [name.partition("@")[0] for name in models if not Path(name).is_dir()]
        closed = [id for id in ids if not self._may(id, None)]
        if closed and account is None:
            raise InputError(
                f"{closed[0]} is gated, or not there: accept its licence on its page at "
                "huggingface.co, and sign in under Models."
            )
        for id in closed:
            assert account is not None
            if not self._may(id, account.token):
                raise InputError(
                    f"{id} is gated, and the account {account.name} may not read it: accept its "
                    "licence on its page at huggingface.co, and load it again."
                )
        return account.token if closed and account else None

    def _may(self, id: str, token: str | None) -> bool:
        with self._lock:
            if time.monotonic() - self._allowed.get((id, token), -self.seconds) < self.seconds:
                return True
        try:
            HfApi(endpoint=self.endpoint, token=token).auth_check(id)
        except (GatedRepoError, RepositoryNotFoundError):
            return False
        except (HfHubHTTPError, HTTPError, OSError) as error:
            raise InputError(
                f"The hub does not say who may read {id} ({first_line(error)}); try again later."
            ) from None
        with self._lock:
            self._allowed[id, token] = time.monotonic()
        return True
