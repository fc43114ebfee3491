"""A stand-in of the hub's HTTP API on this machine, with models."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import hf_api

TOKEN = "hf_stand_in"
COMMIT = "0" * 40


@dataclass
class Hub:
    """What it holds.

    Attributes:
        address: where it answers
        accounts: the account of each token
        models: by path in the repository, the files of each model
        gated: which accounts may read a model, if not everybody may
        down: while it is, every request is refused
    """

    address: str = ""
    accounts: dict[str, str] = field(default_factory=lambda: {TOKEN: "me"})
    models: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: dict[str, set[str]] = field(default_factory=dict)
    down: bool = False


@contextmanager
def standing_in() -> Iterator[Hub]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status: int, body: Any = b"", **headers: str) -> None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        @property
        def account(self) -> str | None:
            said = self.headers.get("Authorization", "")
            return hub.accounts.get(said.removeprefix("Bearer "))

        def refused(self) -> bool:
            if hub.down:
                self.answer(503, {"error": "down"})
            elif self.account is None:
                self.answer(401, {"error": "Invalid token"})
            else:
                return False
            return True

        def model(self) -> bool:
            """Whether it is about a model, and answered."""
            name = next((n for n in hub.models if f"/{n}/" in self.path), None)
            said = self.headers.get("Authorization")
            if said and self.account is None:
                words = "Invalid credentials in Authorization header"
                self.answer(401, {}, X_Error_Message=words)
                return True
            if hub.down or (name is None and not self.path.startswith("/api/models/")):
                return False
            if name is None:
                self.answer(401, {}, X_Error_Code="RepoNotFound")
                return True
            if name in hub.gated and self.account not in hub.gated[name]:
                self.answer(403, {}, X_Error_Code="GatedRepo")
            elif self.path.endswith("/auth-check"):
                self.answer(200, {})
            else:
                path = self.path.partition("/main/")[2]
                self.file(hub.models[name].get(path))
            return True

        def file(self, content: bytes | None) -> None:
            if content is None:
                self.answer(404, {}, X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
            else:
                tag = f'"{sha1(content).hexdigest()}"'
                self.answer(200, content, ETag=tag, X_Repo_Commit=COMMIT)

        def do_GET(self) -> None:
            if self.model() or self.refused():
                return
            self.answer(404, {}, X_Error_Code="RepoNotFound")

        do_HEAD = do_GET

        def log_message(self, *_: Any) -> None:
            """Nothing: a test's output stays its own."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def everywhere(patch: pytest.MonkeyPatch, hub: Hub, cache: Path) -> None:
    """Let all of this process take the stand-in for the hub, with an empty cache."""
    template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
    patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    patch.setattr("huggingface_hub.constants.ENDPOINT", hub.address)
    patch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    patch.setattr(
        "huggingface_hub.file_download.HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False
    )
    patch.setattr(hf_api.api, "endpoint", hub.address)
    patch.setattr("transformers.utils.hub._hf_api", None)  # made anew, with this address
    patch.delenv("HF_TOKEN", raising=False)
