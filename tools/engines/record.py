"""Record what servers of other engines answer, for tests without servers.

    python -m tools.engines.record [vllm] [vllm-draft] [llama-cpp] [llama-cpp-draft]
                                   [llama-cpp-python] [transformers]

Each server is started with the embedded pair, asked as `workbench.engines` asks it, and ended. Its
answers are in `tests/workbench/engines/recorded/`, with the version, the flags and the date. A
stream is a list of lines; of /metrics only the counts of tokens are kept.
"""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import httpx

from tools.engines.places import ROOT, STORIES, Places
from tools.engines.servers import SERVERS, running
from workbench.engines import probe
from workbench.engines.dialects.dialect import Dialect
from workbench.engines.dialects.llama_cpp import LLAMA_CPP
from workbench.engines.dialects.other import OTHER
from workbench.engines.dialects.transformers import TRANSFORMERS
from workbench.engines.dialects.vllm import VLLM
from workbench.engines.record import Query

RECORDED = ROOT / "tests" / "workbench" / "engines" / "recorded"
TOKENS = 24
COUNTED = re.compile(r"\S*(spec_decode\w*_total|tokens(_predicted)?_total)\b")
DIALECTS: dict[str, Dialect] = {
    "vllm": VLLM,
    "vllm-draft": VLLM,
    "llama-cpp": LLAMA_CPP,
    "llama-cpp-draft": LLAMA_CPP,
    "llama-cpp-python": OTHER,
    "transformers": TRANSFORMERS,
}


@dataclass(frozen=True)
class Question:
    """One call of a server: a path, and what is posted, if anything."""

    path: str
    body: dict[str, Any] | None = None


def opening() -> tuple[str, tuple[int, ...]]:
    """A held-out opening and its token ids."""
    from transformers import AutoTokenizer

    text = json.loads((STORIES / "prompts.json").read_text(encoding="utf-8"))["openings"][0]
    return text, tuple(AutoTokenizer.from_pretrained(STORIES / "target")(text).input_ids)


def questions(dialect: Dialect, model: str) -> Iterator[Question]:
    """What a server is asked: all that a client asks, and mistakes."""
    text, ids = opening()
    asked = Query(ids if dialect.takes_ids else text, TOKENS, temperature=0.0)
    whole = replace(asked, stream=False)
    described = ["/openapi.json"] if dialect.sign else []
    version = [dialect.version[0]] if dialect.version else []
    for path in ("/v1/models", *version, *described, "/metrics"):
        yield Question(path)
    for query in (
        asked,
        whole,
        replace(asked, temperature=1.0, seed=7),
        Query(probe.PROMPT, probe.TOKENS, temperature=0.0),
    ):
        yield Question(dialect.path, dialect.body(query, model))
    probing = dialect.body(Query(probe.PROMPT, 1, stream=False), model)
    for field in (dialect.logprobs, dialect.prompt_logprobs):
        if field is not None:
            yield Question(dialect.path, {**probing, field[0]: 1})
            yield Question(dialect.path, {**dialect.body(whole, model), field[0]: 2})
    if dialect.path != "/v1/completions":
        yield Question("/v1/completions", OTHER.body(replace(asked, prompt=text), model))
    yield Question("/metrics")
    yield Question(dialect.path, dialect.body(whole, "another-model"))
    yield Question(dialect.path, dialect.body(replace(whole, max_tokens=100_000), model))


def answered(address: str, question: Question) -> dict[str, Any]:
    """A call and its answer, as they are kept."""
    method = "GET" if question.body is None else "POST"
    # Each on a connection that is new: llama.cpp closes one now and then while it seems open.
    answer = httpx.request(
        method, address + question.path, json=question.body, timeout=300, trust_env=False
    )
    kind = answer.headers.get("content-type", "")
    if kind.startswith("application/json"):
        said: Any = answer.json()
    else:
        said = answer.text.splitlines()
        if question.path == "/metrics":
            said = [line for line in said if COUNTED.match(line)]
    return {
        "method": method,
        "path": question.path,
        "request": question.body,
        "status": answer.status_code,
        "type": kind,
        "answer": said,
    }


def calls(name: str, address: str, model: str) -> list[dict[str, Any]]:
    """What a running server is asked, and what it answers."""
    return [answered(address, each) for each in questions(DIALECTS[name], model)]


def record(name: str, places: Places, folder: Path = RECORDED) -> Path:
    """Start a server, keep its answers in a file, and end it.

    Args:
        name: of the server, one of SERVERS
        places: where engines are installed
        folder: where the file goes

    Raises:
        InputError: if the server cannot be started
    """
    server = SERVERS[name](places)
    with running(server) as address:
        answers = calls(name, address, server.model)
    program, *flags = server.command
    found = {
        "engine": name,
        "kind": DIALECTS[name].kind,
        "version": server.version,
        "date": date.today().isoformat(),
        "command": [Path(program).name, *(each.replace(f"{ROOT}/", "") for each in flags)],
        "environ": dict(server.environ),
        "calls": answers,
    }
    file = folder / f"{name}.json"
    text = json.dumps(found, indent=1, ensure_ascii=False).replace(f"{ROOT}/", "")
    file.write_text(text + "\n", encoding="utf-8")
    return file


def main() -> None:
    for name in sys.argv[1:] or SERVERS:
        print(record(name, Places()), flush=True)


if __name__ == "__main__":
    main()
