"""The attacks: each sends bad requests, and the page counts wrong answers.

`quick` tries a few of each."""

import contextlib
import random
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.hostile.damage import ROWS, damaged, forged
from tests.hostile.page import Page

ODD = (
    None, True, 0, -1, 1.5, 1e308, 10**400, "", "x", "\ud800", "\x00", "9" * 300, [], [[]],
    ["greedy"], [None], {}, {"x": 1}, {"value": []},
    {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}, "<img src=x onerror=alert(1)>",
    "y" * 3_000_000,
)  # fmt: skip
DECODERS = (
    None, "greedy", 7, {}, [], [[]], ["gredy"], ["greedy", "greedy"], ["greedy", None],
    [{"name": "greedy"}],
)  # fmt: skip
SETTINGS = (
    [], "hot", 7, {"temperature": "hot"}, {"greedy": 5}, {"mtad": {"beams": []}},
    {"decoders": ["mtad"]}, {"max_new_tokens": 10**400}, {"seed": -1}, {"repeats": []}, {"": 1},
    {"lookup": {"references": [5]}},
)  # fmt: skip
EVENTS = (
    None, 7, [], {}, {"run": [], "decoder": {}, "at": "x"},
    {"run": "a", "decoder": "greedy", "at": [], "decoders": "greedy"},
    {"run": "a", "decoder": "greedy", "at": 0, "token": "\ud800", "ask": {}},
)  # fmt: skip


def odd_values(page: Page, quick: bool) -> None:
    """Everything odd to every handler: in all of its inputs, then in each alone."""
    working = [each["id"] for each in page.of("click", "experiment-run")]
    for handler in page.handlers():
        usual, count = page.usual(handler), len(handler["inputs"])
        calls = [[value] * count for value in ODD] + [[], [*usual, 1]]
        if handler["id"] not in working:  # what is in order is begun
            calls += [[*usual[:i], value, *usual[i + 1 :]] for i in range(count) for value in ODD]
        for data in some(calls, quick, 1):
            page.fire(handler, data)
        chooses = any(e in ("select", "submit") for _, e in handler["targets"])
        for event in EVENTS if chooses else ():
            page.fire(handler, usual, event)


def some(calls: Sequence[Any], quick: bool, count: int) -> Sequence[Any]:
    """All of them, or as many as there is time for, others with another seed."""
    return random.sample(calls, min(count, len(calls))) if quick else calls


def endpoints(page: Page, quick: bool) -> None:
    """Odd arguments to the endpoints for programs."""
    calls: list[tuple[str, list]] = []
    for name in ("compare", "draw"):
        calls += [(name, [prompt, ["gredy"], {}]) for prompt in ODD]
        calls += [(name, ["Once", decoders, {"max_new_tokens": "x"}]) for decoders in DECODERS]
        calls += [(name, ["Once", ["greedy"], settings]) for settings in SETTINGS]
    for name, data in (
        ("alternatives", ["abc", "greedy", 1]),
        ("branch", ["abc", "greedy", 1, 5, ["greedy"]]),
    ):
        calls += [(name, [*data[:i], x, *data[i + 1 :]]) for i in range(len(data)) for x in ODD]
    for name, data in some(calls, quick, 12):
        page.ask(name, data)
    for value in some(ODD, quick, 6):
        page.post("gradio_api/call/compare", {"data": value})
        page.post("gradio_api/call/nothing", {"data": []})
        joined = {"data": [value], "fn_index": value, "session_hash": value}
        page.post("gradio_api/queue/join", joined)
        written = str(value)[:2000].encode("utf-8", "replace")
        page.http.get("", params={"run": written, "prompt": "x", "decoders": "greedy,"})
        page.http.get(f"export/{written[:20].hex()}.json")
        page.read_log(f"GET /?run={value!r:.60}")


def imports(page: Page, quick: bool) -> None:
    """Forged runs: each is refused in a sentence, or can be opened, exported and compared.

    It can also be put beside the theory."""
    handler, opens = page.handler("upload", "import-run"), page.handler("click", "open-run")
    both, theory = page.handler("click", "compare-two"), page.handler("change", "theory-run")
    delete = page.handler("click", "delete-run")
    loads = (h for h in page.handlers() if any(e == "load" for _, e in h["targets"]))
    load = max(loads, key=lambda handler: len(handler["outputs"]))  # it opens what a link names
    for content in forged(4 if quick else 300):
        file = page.upload(content, "forged.json")
        answer = page.fire(handler, [file]) if file else None
        if answer is None or "?run=" not in answer.text:
            continue
        with contextlib.closing(sqlite3.connect(page.server.data / "runs.sqlite")) as db:
            (id,) = db.execute("SELECT id FROM runs ORDER BY rowid DESC").fetchone()
        # it stays if there is something to be found with it
        path = Path(tempfile.gettempdir()) / f"forged-{id}.json"
        path.write_bytes(content)
        before = len(page.findings)
        page.fire(opens, [{"chosen": [id]}])
        page.fire(both, [{"chosen": [id, id]}])
        page.lists(str(path))  # Theory's is what may be chosen from
        page.fire(theory, [id])
        page.fire(load, [None])
        for kind in ("json", "csv", "html"):
            if page.http.get(f"export/{id}.{kind}").status_code != 200:
                curl = f"curl {page.server.address}export/{id}.{kind}"
                page.found(f"The run of {path} has no export as {kind}.", curl)
        page.read_log(f"exports of the run of {path}")
        if len(page.findings) == before:
            path.unlink()
        page.fire(delete, [None, [id], "", "all"])
    page.lists("after imports")


def uploads(page: Page, quick: bool) -> None:
    """Too large, unasked, refused, accepted: nothing stays where uploads are kept."""
    for part, name, contents in (
        ("import-run", "run.json", (b"{}", b"[" * 100_000)),
        ("batch-file", "prompts.txt", (b"Once\n", b"\xff\xfe", b"")),
    ):
        handler = page.handler("upload", part)
        takes = [page.parts[i]["type"] in ("file", "uploadbutton") for i in handler["inputs"]]
        for content in contents:
            file, usual = page.upload(content, name), page.usual(handler)
            data = [file if own else value for own, value in zip(takes, usual, strict=True)]
            page.fire(handler, data)
    with contextlib.suppress(httpx.TransportError):
        page.upload(b"x" * (150 if not quick else 60) * 2**20, "run.json")
    left(page, "uploads that were read or refused")


def left(page: Page, call: str) -> None:
    """Files where uploads are kept."""
    for _ in range(20):
        files = [file for file in page.server.uploads.rglob("*") if file.is_file()]
        if not files:
            return
        time.sleep(0.1)
    size = sum(file.stat().st_size for file in files)
    page.found(f"{len(files)} files ({size:,} bytes) stay in {page.server.uploads}.", call)


def damage(page: Page, quick: bool) -> None:
    """Damaged rows: the others are listed and open, and the damaged ones say that they are."""
    runs, opens = page.server.data / "runs.sqlite", page.handler("click", "open-run")
    page.ask("compare", ["Once", ["greedy"], {"max_new_tokens": 4, "timings": 1}])
    with contextlib.closing(sqlite3.connect(runs)) as db:
        (id,) = db.execute("SELECT id FROM runs ORDER BY rowid LIMIT 1").fetchone()
    for change in some(ROWS, quick, 6):
        page.meanwhile = change
        with damaged(runs, change):
            page.lists(change)
            page.fire(opens, [{"chosen": [id]}])
            page.fire(page.handler("click", "compare-two"), [{"chosen": [id, id]}])
            page.http.get(f"export/{id}.csv")
            page.read_log(change)
    page.meanwhile = ""


def full_disk(page: Page, quick: bool) -> None:
    """Measured results are shown all the same, imports are refused, and the lists open."""
    with page.server.full():
        text = page.ask("compare", ["Once", ["greedy"], {"max_new_tokens": 4, "timings": 1}])
        if "unkept" not in text or '"text"' not in text:
            page.found("On a full disk a run is not shown, or not said to be lost.", text[:300])
        with contextlib.suppress(httpx.TransportError):
            if file := page.upload(next(iter(forged(1))), "run.json"):
                page.fire(page.handler("upload", "import-run"), [file])
        page.lists("on a full disk")
    page.ask("compare", ["Once", ["greedy"], {"max_new_tokens": 4, "timings": 1}])


ATTACKS = (endpoints, odd_values, imports, uploads, damage, full_disk)
