"""Requests of clients to a served page: odd values are refused before a handler sees them.

Files do not stay."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.browser.conftest import serving
from tests.opened import whole
from workbench.page.host import Host
from workbench.runs.record import LARGEST_FILE, Run

Fire = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def uploads(tmp_path_factory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("uploads")
        patch.setenv("GRADIO_TEMP_DIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def served(pair, uploads, tmp_path_factory) -> Iterator[tuple[str, Host]]:
    with serving(pair, tmp_path_factory.mktemp("runs")) as running:
        yield running


@pytest.fixture(scope="module")
def fire(served) -> Fire:
    """Sends data to the handler of an event of this component, as the page does."""
    address = served[0]
    config = whole(address, "a")
    names = {part["id"]: part["props"].get("elem_id") for part in config["components"]}
    handlers = {
        (names.get(i), e): each["id"]
        for each in config["dependencies"]
        for i, e in each["targets"]
        if each["backend_fn"]
    }

    def fire(name: str, event: str, *data: object) -> httpx.Response:
        body = {"fn_index": handlers[name, event], "data": data, "session_hash": "a"}
        return httpx.post(f"{address}gradio_api/run/predict", json=body, timeout=60)

    return fire


def given(address: str, content: bytes, name: str) -> dict:
    (path,) = httpx.post(
        f"{address}gradio_api/upload", files={"files": (name, content)}, timeout=60
    ).json()
    return {"path": path, "meta": {"_type": "gradio.FileData"}}


def left(uploads: Path) -> list[Path]:
    return [path for path in uploads.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("name", "event", "data"),
    [
        ("preset", "input", [[]]),
        ("preset", "input", [{"a": 1}]),
        ("load-pair", "click", [None, "Llama-Stories", "", "", [], "auto", "as stored"]),
        ("experiment-plan", "change", [[], None]),
        ("kind-of-runs", "change", ["", []]),
    ],
)
def test_what_the_page_cannot_send_is_one_sentence(fire, capfd, name, event, data):
    """A list as the preset gave a TypeError, and a traceback in the log."""
    answer = fire(name, event, *data)
    assert answer.json()["error"] == "The page cannot send this; reload it."
    assert "Traceback" not in "".join(capfd.readouterr())


def test_half_a_character_in_a_body_that_cannot_be_read_is_answered(served, capfd):
    """The answer repeats what was sent, which could not be sent back: a 500 and a traceback."""
    body = '{"data": [], "fn_index": "\\ud800"}'
    head = {"content-type": "application/json"}
    answer = httpx.post(f"{served[0]}gradio_api/queue/join", content=body, headers=head)
    assert (answer.status_code, answer.json()) == (422, {"detail": "This request cannot be read."})
    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("path", "number"), [("queue/join", 10**9), ("run/predict", 10**9), ("call/nothing", None)]
)
def test_a_handler_that_is_not_there_is_one_sentence(served, capfd, path, number):
    """A handler's number that no page has was a KeyError, and a traceback in the log."""
    body = {"data": [], "fn_index": number, "session_hash": "a"}
    answer = httpx.post(f"{served[0]}gradio_api/{path}", json=body, timeout=60)
    assert (answer.status_code, answer.json()["detail"]) == (
        404,
        "The page has no such handler; reload it.",
    )
    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("name", "file", "content", "more"),
    [
        ("batch-file", "a.txt", b"Once\nTwice\n", []),
        ("batch-file", "a.txt", b"\xff\xfe", []),
        ("import-run", "a.json", b"{}", []),
        ("experiment-file", "a.toml", b"x = [", ["own"]),
    ],
)
def test_a_file_is_gone_once_it_is_read_or_refused(
    served, fire, uploads, name, file, content, more
):
    """Every file that a visitor gave stayed in the temporary folder, and an empty one beside it."""
    answer = fire(name, "upload", *more, given(served[0], content, file))
    assert answer.status_code == 200
    assert "a." in answer.text or "not a run" in answer.text
    assert left(uploads) == []


def test_an_imported_run_is_kept_and_its_file_is_not(served, fire, uploads, run: Run):
    assert (
        "?run="
        in fire("import-run", "upload", given(served[0], run.dumps().encode(), "run.json")).text
    )
    assert served[1].store.get(run.id) == run
    assert left(uploads) == []


def test_a_file_that_is_too_large_is_refused_and_does_not_stay(served, uploads):
    """150 MB were taken, and stayed."""
    files = {"files": ("run.json", b"x" * (LARGEST_FILE + 1))}
    assert httpx.post(f"{served[0]}gradio_api/upload", files=files, timeout=120).status_code == 413
    assert left(uploads) == []


def test_a_file_that_is_not_sent_as_one_does_not_stay(served, uploads):
    httpx.post(f"{served[0]}gradio_api/upload", files={"others": ("run.json", b"{}")}, timeout=60)
    assert left(uploads) == []


def test_half_a_file_does_not_stay(served, uploads):
    """A visitor who left during an upload left a partial file behind."""
    address = httpx.URL(served[0])
    body = (
        b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.json"\r\n\r\n'
        + b"x" * 200_000
    )
    with socket.create_connection((address.host, address.port)) as client:
        client.sendall(
            b"POST /gradio_api/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n"
        )
        client.sendall(b"Content-Type: multipart/form-data; boundary=b\r\n\r\n" + body)
        while not left(uploads):
            pass
    for _ in range(300):
        if not left(uploads):
            return
        httpx.get(f"{address}config", timeout=60)
    assert left(uploads) == []


def test_a_file_that_the_disk_has_no_room_for_is_one_sentence(served, uploads, capfd, monkeypatch):
    """An upload to a full disk was a traceback in the log."""

    async def full(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gradio.route_utils.GradioUploadFile.write", full)
    answer = httpx.post(
        f"{served[0]}gradio_api/upload", files={"files": ("run.json", b"{}")}, timeout=60
    )
    assert (answer.status_code, answer.text) == (
        400,
        "The file cannot be stored: No space left on device.",
    )
    assert left(uploads) == []
    assert "Traceback" not in "".join(capfd.readouterr())


def test_an_address_is_no_file(fire):
    """Gradio would have fetched it, however large it is."""
    answer = fire(
        "import-run",
        "upload",
        {"path": "http://127.0.0.1:9/run.json", "meta": {"_type": "gradio.FileData"}},
    )
    assert answer.json()["error"] == "An address is not a file; upload one."
