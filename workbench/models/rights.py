"""Who may read a gated model: this machine's own account, or a visitor who has signed in."""

import threading
import time
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import (
    build_hf_headers,
    get_session,
    hf_raise_for_status,
    validate_repo_id,
)

from decoders import InputError
from decoders.assets import assets
from decoders.errors import first_line, quoted

ADAPTER, MTP = "adapter_config.json", "mtp"  # see `load_pair`
# Folders of assets with what comes with a target; neither is read over the network.
SHIPPED = {None: "stories", "smollm2": "smollm2"}
HOLDS = 600.0  # seconds for which a yes for a visitor holds
WAITS = 15.0  # seconds that a visitor waits for the hub


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
    """What the hub says about who may read which model, where visitors can sign in.

    Weights that one visitor has fetched lie on the disk and in memory, where others could use
    them; so the hub is asked for everybody, and folders that a visitor names are not read.

    Args:
        endpoint: the hub's address, by default that of HF_ENDPOINT
        holds: seconds for which a yes for a visitor holds
    """

    def __init__(self, endpoint: str | None = None, holds: float = HOLDS):
        self.endpoint, self.holds = endpoint, holds
        self._own: set[str] = set()  # what this machine's own account may read
        self._theirs: dict[tuple[str, str], float] = {}  # when the hub said yes to a visitor
        self._lock = threading.Lock()

    def token(self, target: str | None, draft: str | None, account: Account | None) -> str | None:
        """The token with which a pair can be read: the account's, or None for the machine's own.

        Args:
            target: see `load_pair`, as for `draft`
            draft: the name of the draft
            account: whoever asks for them, if that is known

        Raises:
            InputError: if one may not be read, or the hub does not answer
        """
        ids = [_id(name) for name in _named(target, draft)]
        closed = [id for id in ids if not self._we_may(id)]
        if not closed:
            return None
        if account is None:
            raise InputError(
                f"{closed[0]} is gated, or not there: accept its licence on its page at "
                "huggingface.co, and sign in under Models."
            )
        for id in ids:
            if not self._they_may(id, account):
                raise InputError(
                    f"{id} is gated, or not there, and the account {account.name} may not read it: "
                    "accept its licence on its page at huggingface.co, and load it again."
                )
        return account.token

    def _we_may(self, id: str) -> bool:
        with self._lock:
            if id in self._own:
                return True
        # An own token that has ended is no reason to refuse what everybody may read.
        if not (self._asked(id, None) or self._asked(id, False)):
            return False
        with self._lock:
            self._own.add(id)
        return True

    def _they_may(self, id: str, account: Account) -> bool:
        key, now = (id, sha256(account.token.encode()).hexdigest()), time.monotonic()
        with self._lock:
            self._theirs = {k: at for k, at in self._theirs.items() if now - at < self.holds}
            if key in self._theirs:
                return True
        if not self._asked(id, account.token):
            return False
        with self._lock:
            self._theirs[key] = now
        return True

    def _asked(self, id: str, token: str | Literal[False] | None) -> bool:
        try:
            answer = self._get(f"api/models/{id}/auth-check", token)
            said = answer.headers.get("X-Error-Message", "")
            if token and answer.status_code == 401 and "Invalid credentials" in said:
                raise InputError("Your sign-in has ended; sign in again under Models.")
            hf_raise_for_status(answer)
            if find_spec("peft") and self._get(f"{id}/raw/main/{ADAPTER}", token).is_success:
                # transformers would load the base that it names, of which nobody has been asked
                raise InputError(f"{id} is an adapter, which is not loaded here; name its base.")
        except (GatedRepoError, RepositoryNotFoundError):
            return False
        except (HfHubHTTPError, HTTPError, OSError) as error:
            if getattr(getattr(error, "response", None), "status_code", None) == 401:
                return False
            raise InputError(
                f"The hub does not say who may read {id} ({first_line(error)}); try again later."
            ) from None
        return True

    def _get(self, path: str, token: str | Literal[False] | None) -> Any:
        return get_session().get(
            f"{self.endpoint or constants.ENDPOINT}/{path}",
            headers=build_hf_headers(token=token),
            timeout=WAITS,
        )


def _named(target: str | None, draft: str | None) -> list[str]:
    """The names of a pair's models that are not shipped, and not part of another."""
    ours = SHIPPED.get(target)
    shipped = [file.name for file in (assets() / ours).iterdir()] if ours else []
    target = None if ours else target
    return [name for name in (target, draft) if name is not None and name not in (*shipped, MTP)]


def _id(name: str) -> str:
    """The id of a model of the hub, from its name with or without "@revision"."""
    id = name.partition("@")[0]
    try:
        validate_repo_id(id)
    except HFValidationError:
        raise InputError(
            f"{quoted(name)} is no model of the hub; take a name such as organisation/model."
        ) from None
    if Path(id).exists():
        kind = "folder" if Path(id).is_dir() else "file"
        raise InputError(f"{quoted(name)} is a {kind}; name a model of the hub here.")
    return id
