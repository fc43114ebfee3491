"""A server to be started by tests: it looks like vLLM, and writes numbers.

    python startable.py --port 8000 --draft 2

It needs nothing of the project, so that it starts at once. Of each draft it accepts one token.
"""

import argparse
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
parser.add_argument("--draft", type=int, default=0)
parser.add_argument("--model", default="stories")
parser.add_argument("--version", default="1.2.3")
parser.add_argument("--mute", action="store_true", help="never listen")
parser.add_argument("--end", help="write this and end at once")
parser.add_argument("--dies", help="end at the first request with this in its prompt")
parser.add_argument("--unready", type=int, default=0, help="refuse so many requests at first")
parser.add_argument("--pid", help="file for the process's id")
options = parser.parse_args()


def tokens(count):
    """The pieces of an answer, as numbers of tokens, and what each step drafted and accepted."""
    pieces, steps = [1], []
    while sum(pieces) < count:
        drafted = min(options.draft, count - sum(pieces) - 1)
        steps.append((drafted, min(1, drafted)))
        pieces.append(1 + steps[-1][1])
    return pieces, steps if options.draft else []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        found = {
            "/v1/models": {"data": [{"id": options.model, "owned_by": "vllm"}]},
            "/version": {"version": options.version},
        }
        body = json.dumps(found.get(self.path, {})).encode()
        self.send_response(200 if self.path in found else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if options.dies is not None and options.dies in asked["prompt"]:
            os._exit(1)
        if options.unready > 0:
            options.unready -= 1
            self.send_error(503)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        pieces, steps = tokens(asked["max_tokens"])
        for i, count in enumerate(pieces):
            reason = "length" if i == len(pieces) - 1 else None
            choice = {"text": f" {i}", "token_ids": [i] * count, "finish_reason": reason}
            self.event({"model": options.model, "choices": [choice]})
            time.sleep(0.001)
        told = {
            "num_draft_tokens": sum(drafted for drafted, _ in steps),
            "num_accepted_draft_tokens": sum(accepted for _, accepted in steps),
            "num_spec_steps": len(steps),
            "per_step_drafted": [drafted for drafted, _ in steps],
            "per_step_accepted": [accepted for _, accepted in steps],
        }
        metrics = {"metrics": {"speculative_decoding": told}} if steps else {}
        usage = {"completion_tokens": sum(pieces)}
        self.event({"model": options.model, "choices": [], "usage": usage, **metrics})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, value):
        self.wfile.write(b"data: %s\n\n" % json.dumps(value).encode())
        self.wfile.flush()

    def log_message(self, *_):
        """Keep quiet."""


if options.pid:
    with open(options.pid, "a") as file:
        file.write(f"{os.getpid()}\n")
if options.end:
    sys.exit(options.end)
if options.mute:
    threading.Event().wait()
server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
server.daemon_threads = True
server.serve_forever()
