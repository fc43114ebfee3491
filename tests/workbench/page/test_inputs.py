"""Files that a client gives to a served page do not stay."""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.browser.conftest import serving
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
    config = httpx.get(f"{address}config", timeout=60).json()
    names = {part["id"]: part["props"].get("elem_id") for part in config["components"]}
    functions = [each for each in config["dependencies"] if each["backend_fn"]]
    handlers = {(names.get(i), e): each["id"] for each in functions for i, e in each["targets"]}

    def fire(name: str, event: str, *data: object) -> httpx.Response:
        body = {"fn_index": handlers[name, event], "data": data, "session_hash": "a"}
        return httpx.post(f"{address}gradio_api/run/predict", json=body, timeout=60)

    return fire


def given(address: str, content: bytes, name: str) -> dict:
    files = {"files": (name, content)}
    (path,) = httpx.post(f"{address}gradio_api/upload", files=files, timeout=60).json()
    return {"path": path, "meta": {"_type": "gradio.FileData"}}


def left(uploads: Path) -> list[Path]:
    return [path for path in uploads.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("name", "file", "content"), [
    ("batch-file", "a.txt", b"Once\nTwice\n"),
    ("batch-file", "a.txt", b"\xff\xfe"),
    ("import-run", "a.json", b"{}"),
])  # fmt: skip
def test_a_file_is_gone_once_it_is_read_or_refused(served, fire, uploads, name, file, content):
    """Every file that a visitor gave stayed in the temporary folder, and an empty one beside it."""
    answer = fire(name, "upload", given(served[0], content, file))
    assert answer.status_code == 200
    assert "a." in answer.text or "not a run" in answer.text
    assert left(uploads) == []


def test_an_imported_run_is_kept_and_its_file_is_not(served, fire, uploads, run: Run):
    file = given(served[0], run.dumps().encode(), "run.json")
    assert "?run=" in fire("import-run", "upload", file).text
    assert served[1].store.get(run.id) == run
    assert left(uploads) == []


def test_a_file_that_is_too_large_is_refused_and_does_not_stay(served, uploads):
    """150 MB were taken, and stayed."""
    files = {"files": ("run.json", b"x" * (LARGEST_FILE + 1))}
    assert httpx.post(f"{served[0]}gradio_api/upload", files=files, timeout=120).status_code == 413
    assert left(uploads) == []


@pytest.mark.parametrize("meta", [{"meta": {"_type": "gradio.FileData"}}, {}])
def test_a_file_that_was_not_uploaded_is_neither_read_nor_deleted(fire, tmp_path, run, meta):
    """A handler that deletes what it reads must not be led to a file of the machine."""
    file = tmp_path / "run.json"
    file.write_text(run.dumps())
    answer = fire("import-run", "upload", {"path": str(file), **meta})
    assert "?run=" not in answer.text
    assert file.exists()
