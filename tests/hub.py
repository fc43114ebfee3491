"""A stand-in of the hub's HTTP API on this machine: datasets that take commits and give files."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_stand_in"
COMMIT = "0" * 40


@dataclass
class Hub:
    """What it holds.

    Attributes:
        address: where it answers
        files: by path in the repository, of each dataset that was made
        private: whether each was made private
        commits: the number of commits
        down: while it is, every request is refused
    """

    address: str = ""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    commits: int = 0
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

        def refused(self) -> bool:
            if hub.down:
                self.answer(503, {"error": "down"})
            elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self.answer(401, {"error": "Invalid token"})
            else:
                return False
            return True

        def do_GET(self) -> None:
            if self.refused():
                return
            name, _, path = self.path.removeprefix("/datasets/").partition("/resolve/main/")
            content = hub.files.get(name, {}).get(path)
            if content is None:
                return self.answer(404, {}, X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
            self.answer(200, content, ETag=f'"{sha1(content).hexdigest()}"', X_Repo_Commit=COMMIT)

        do_HEAD = do_GET

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.refused():
                return
            if self.path == "/api/repos/create":
                asked = json.loads(body)
                name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
                name = name if "/" in name else f"me/{name}"
                hub.files.setdefault(name, {})
                hub.private.setdefault(
                    name, asked.get("visibility") == "private" or bool(asked.get("private"))
                )
                return self.answer(200, {"url": f"{hub.address}/datasets/{name}"})
            name, _, action = self.path.removeprefix("/api/datasets/").partition("/")
            owner, name = name, action.split("/", 1)[0]
            name, action = f"{owner}/{name}", action.split("/", 1)[1]
            if action.startswith("preupload"):
                files = [
                    {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for f in json.loads(body)["files"]
                ]
                return self.answer(200, {"files": files})
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    hub.files[name][value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "deletedFile":
                    if value["path"] not in hub.files[name]:
                        return self.answer(404, {}, X_Error_Code="EntryNotFound")
                    del hub.files[name][value["path"]]
            hub.commits += 1
            self.answer(
                200, {"commitUrl": f"{hub.address}/datasets/{name}/commit/{COMMIT}",
                      "commitOid": COMMIT, "hookOutput": ""},
            )  # fmt: skip

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
