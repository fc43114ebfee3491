"""The door of the page, and exports over HTTP."""

import json
import socket

import pytest
from gradio import networking
from starlette.applications import Starlette
from starlette.testclient import TestClient

from decoders import InputError
from workbench.page.layout import build, export_route, serve
from workbench.runs.store import RunStore


def test_a_port_that_is_taken_is_said(host):
    """Once it was a traceback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"^Port {port} is taken; choose another one.$"):
            serve(host, build(host), port)


def test_a_page_that_does_not_hear_itself_says_why(host, monkeypatch):
    """On a machine that was very busy, and behind a proxy, it was a traceback that told a visitor
    to set share=True."""
    monkeypatch.setattr(networking, "url_ok", lambda url: False)
    page = build(host)
    with pytest.raises(InputError, match=r"set NO_PROXY=localhost,127\.0\.0\.1, and if the"):
        serve(host, page)
    page.close()


def test_files_of_a_run(run, tmp_path):
    store = RunStore(tmp_path / "runs.sqlite")
    store.save(run)
    client = TestClient(Starlette(routes=[export_route(store)]))
    answer = client.get(f"/export/{run.id}.json")
    assert json.loads(answer.text) == run.to_json()
    assert f"run-{run.id}.json" in answer.headers["content-disposition"]
    assert client.get(f"/export/{run.id}.csv").headers["content-type"].startswith("text/csv")
    assert client.get(f"/export/{run.id}.html").text.startswith("<!doctype html>")
    for missing in ("000000000000.json", f"{run.id}.exe", "nonsense"):
        answer = client.get(f"/export/{missing}")
        assert answer.status_code == 404
        assert "There is no" in answer.text
