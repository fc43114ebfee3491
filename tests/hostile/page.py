"""Requests of a program to a served page, and the answers that it must not get."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.served import Served

ROOT = Path(__file__).parents[2]
SECONDS = 60  # for an answer: what takes longer has frozen
JSON = {"content-type": "application/json"}
LISTS = {"Runs": "past-runs", "Theory": "theory-run", "Experiments": "experiment-past"}
SLOW_SECONDS, LARGE = 20, 2_000_000  # for a list, and bytes of it


class Page:
    """A served page as a program sees it.

    `findings` are the wrong answers, `meanwhile` the requests before them."""

    def __init__(self, server: Served):
        self.server, self.findings, self.seen, self.meanwhile = server, list[str](), 0, ""
        fresh = httpx.Limits(max_keepalive_connections=0)  # a connection that was refused is closed
        self.http = httpx.Client(base_url=server.address, timeout=SECONDS, limits=fresh)
        self.config = httpx.get(f"{server.address}config", timeout=60).json()
        self.parts = {part["id"]: part for part in self.config["components"]}

    def found(self, what: str, call: str) -> None:
        self.findings.append(what)
        print(f"\n{what}{self.meanwhile and ' After: '}{self.meanwhile}\n  {call}", flush=True)

    def curl(self, path: str, data: dict[str, Any]) -> str:
        return (
            f"curl -s {self.server.address}{path} -H 'content-type: application/json' -d "
            f"'{json.dumps(data)}'"
        )

    def post(self, path: str, data: dict[str, Any]) -> httpx.Response | None:
        """The answer to some JSON; tracebacks in the log, silence and unforeseen faults are
        findings."""
        body, call = json.dumps(data), self.curl(path, data)
        try:
            answer = self.http.post(path, content=body, headers=JSON)
        except httpx.TransportError as error:
            state = "runs" if self.server.process.poll() is None else "is dead"
            self.found(f"No answer ({error!r}); the server {state}.", call)
            return None
        if "went wrong" in answer.text or "broke down" in answer.text:
            self.found(f"An unforeseen fault: {answer.text[:200]}", call)
        self.read_log(call)
        return answer

    def read_log(self, call: str) -> None:
        if "Traceback" in self.server.log[self.seen :]:
            time.sleep(0.3)  # the rest of it
            new, self.seen = self.server.log[self.seen :], len(self.server.log)
            last = new.rpartition("Traceback")[2].splitlines()
            if not any(f"{ROOT / room}{os.sep}" in new for room in ("workbench", "decoders")):
                return  # Gradio's, about a request that it refused
            ours = [line for line in last if "site-packages" not in line and "^^^" not in line]
            self.found("A traceback in the log.", "\n  ".join([f"{call:.600}", *ours[-14:]]))

    def handlers(self) -> Iterator[dict[str, Any]]:
        """All handlers that run on the server."""
        yield from (each for each in self.config["dependencies"] if each["backend_fn"])

    def of(self, event: str, name: str) -> list[dict[str, Any]]:
        """The handlers of an event of the component with this elem_id or label."""
        parts = ((i, part["props"]) for i, part in self.parts.items())
        own = [[i, event] for i, p in parts if name in (p.get("elem_id"), p.get("label"))]
        return [each for each in self.handlers() if any([*t] in own for t in each["targets"])]

    def handler(self, event: str, name: str) -> dict[str, Any]:
        return self.of(event, name)[0]

    def usual(self, handler: dict[str, Any]) -> list[Any]:
        """The values of a handler's inputs when the page opens."""
        return [self.parts[i]["props"].get("value") for i in handler["inputs"]]

    def fire(
        self, handler: dict[str, Any], data: list[Any], event: Any = None, session: str = "hostile"
    ) -> httpx.Response | None:
        body = {
            "fn_index": handler["id"], "data": data, "session_hash": session, "event_data": event,
        }  # fmt: skip
        return self.post("gradio_api/run/predict", body)

    def ask(self, name: str, data: list[Any]) -> str:
        """The answer of an endpoint for programs."""
        path = f"gradio_api/call/{name}"
        asked = self.post(path, {"data": data})
        if asked is None or "event_id" not in asked.text:
            return asked.text if asked else ""
        try:
            text = self.http.get(f"{path}/{asked.json()['event_id']}").text
        except httpx.TimeoutException:
            text = "no answer: went wrong"
        second = f"curl -s {self.server.address}{path}/EVENT_ID"
        call = f"{self.curl(path, {'data': data}):.600}\n  {second}"
        if "went wrong" in text:
            self.found(f"An unforeseen fault of /{name}: {text[:200]}", call)
        self.read_log(call)
        return text

    def upload(self, content: bytes, name: str) -> dict[str, Any] | None:
        """The file as a handler takes it; None if it is refused."""
        answer = self.http.post("gradio_api/upload", files={"files": (name, content)})
        self.read_log(f"upload of {len(content):,} bytes as {name}")
        if answer.status_code != 200:
            return None
        return {"path": answer.json()[0], "orig_name": name, "meta": {"_type": "gradio.FileData"}}

    def lists(self, call: str) -> None:
        """Every list opens."""
        for name, list in LISTS.items():
            outputs = {i for i, part in self.parts.items() if part["props"].get("elem_id") == list}
            selects = (each for each in self.of("select", name) if outputs & {*each["outputs"]})
            for handler in selects:
                began, answer = time.monotonic(), self.fire(handler, self.usual(handler))
                slow = time.monotonic() - began > SLOW_SECONDS
                if (
                    answer is None
                    or slow
                    or answer.status_code != 200
                    or len(answer.content) > LARGE
                ):
                    self.found(
                        f"The list of {name} does not open.",
                        f"{call}; {answer and answer.text[:300]}",
                    )
