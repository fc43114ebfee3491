"""A server on a free port of this machine that answers as a test says."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from workbench.engines.addresses import Engine

MODEL = "stories"


@dataclass(frozen=True)
class Reply:
    """An answer.

    Attributes:
        body: its bytes, or pieces of them, which are sent one by one and end the connection
        status: of HTTP
        headers: besides the content type; they end the connection, too
        type: the content type
    """

    body: bytes | Iterable[bytes]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    type: str = "application/json"


def a_json(value: Any, status: int = 200) -> Reply:
    return Reply(json.dumps(value).encode(), status)


def a_stream(events: Iterable[Any], end: bytes = b"data: [DONE]\n\n") -> Reply:
    """Server-sent events; what is bytes is sent as it is."""

    def pieces() -> Iterator[bytes]:
        for event in events:
            yield (
                event if isinstance(event, bytes) else b"data: %s\n\n" % json.dumps(event).encode()
            )
        yield end

    return Reply(pieces(), type="text/event-stream")


@dataclass(frozen=True)
class Call:
    """A request that the server got."""

    path: str
    body: Any
    key: str | None


Answers = Callable[[Call], Reply]


@dataclass(frozen=True)
class Served:
    url: str
    calls: list[Call]

    def engine(self, **fields: Any) -> Engine:
        return Engine("fake", self.url, **fields)


@contextmanager
def served(answers: Answers) -> Iterator[Served]:
    """The server while it runs.

    Args:
        answers: what it answers; paths that it does not know raise KeyError, which becomes a 404
    """
    calls: list[Call] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self.answer(None)

        def do_POST(self) -> None:
            self.answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def answer(self, body: Any) -> None:
            calls.append(Call(self.path, body, self.headers["authorization"]))
            try:
                reply = answers(calls[-1])
            except KeyError:
                reply = a_json({"detail": "Not Found"}, 404)
            self.send_response(reply.status)
            self.send_header("content-type", reply.type)
            stays = isinstance(reply.body, bytes) and not reply.headers
            length = {"content-length": str(len(reply.body))} if stays else {"connection": "close"}
            for name, value in {**reply.headers, **length}.items():
                self.send_header(name, value)
            self.end_headers()
            pieces = [reply.body] if isinstance(reply.body, bytes) else reply.body
            try:
                for piece in pieces:
                    self.wfile.write(piece)
                    self.wfile.flush()
            except (BrokenPipeError, ConnectionResetError):
                pass  # the client has had enough

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield Served(f"http://127.0.0.1:{server.server_port}", calls)
    finally:
        server.shutdown()
        server.server_close()


def vllm(completion: Answers, model: str = MODEL) -> Answers:
    """A server that looks like vLLM."""

    def answers(call: Call) -> Reply:
        fixed = {
            "/v1/models": {"object": "list", "data": [{"id": model, "owned_by": "vllm"}]},
            "/version": {"version": "0.32.0"},
        }
        return a_json(fixed[call.path]) if call.body is None else completion(call)

    return answers


def chunk(text: str, ids: Iterable[int] | None = None, **fields: Any) -> dict[str, Any]:
    """A chunk of a completion, as vLLM sends it."""
    choice = {"index": 0, "text": text, "finish_reason": fields.pop("finish_reason", None)}
    told = {} if ids is None else {"token_ids": list(ids)}
    return {"model": MODEL, "choices": [{**choice, **told}], **fields}


def usage(count: int, **fields: Any) -> dict[str, Any]:
    """The last chunk, with the number of tokens."""
    return {"model": MODEL, "choices": [], "usage": {"completion_tokens": count}, **fields}
