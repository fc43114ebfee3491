"""Exports over HTTP."""

import json

from starlette.applications import Starlette
from starlette.testclient import TestClient

from workbench.page.downloads import export_route
from workbench.runs.store import RunStore


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
