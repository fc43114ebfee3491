"""The page's endpoints, asked by a client over HTTP."""

import runpy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gradio_client import Client

from tests.golden.terminal import ROOT, home

SAMPLING = {
    "top_k": 20, "top_p": 0.9, "min_p": 0.0, "top_n_sigma": 0.0, "temperature_last": False,
}  # fmt: skip


@contextmanager
def served(folder: Path) -> Iterator[Client]:
    """A client of the page of app.py, which begins with the embedded pair."""
    with home(folder, WORKBENCH_PAIR="Llama-Stories (embedded)"):
        page = runpy.run_path(str(ROOT / "app.py"))["demo"]
        page.launch(server_name="127.0.0.1", prevent_thread_lock=True, quiet=True)
        try:
            yield Client(page.local_url, verbose=False)
        finally:
            page.close(verbose=False)


def answers(
    folder: Path, settings: Mapping[str, Mapping[str, Any]], every: bool = True
) -> dict[str, Any]:
    """The answers by the names of calls, all or two, for the settings of each decoder."""

    def asked(decoders: list[str], **shared: Any) -> dict[str, Any]:
        return {**SAMPLING, **shared, **{name: settings[name] for name in decoders}}

    found = {}
    with served(folder) as client:
        names = ["multinomial", "speculative", "specinfer", "traversal", "match"]
        own = asked(names, temperature=1.0, max_new_tokens=12, seed=5, repeats=2, timings=1)
        parent = client.predict("Tom had a red ball. Tom had", names, own, api_name="/compare")
        found["/compare T=1"] = parent
        found["/branch"] = client.predict(
            parent["id"], "multinomial", 3, 259, ["multinomial", "match"], api_name="/branch"
        )
        if not every:
            return found
        names = ["greedy", "speculative", "mtad", "dsbd", "lookup", "beam_search"]
        own = asked(names, temperature=0.0, max_new_tokens=16, seed=1, repeats=1, timings=1)
        found["/compare T=0"] = client.predict("Once upon a time", names, own, api_name="/compare")
        names = ["multinomial", "speculative", "mtad", "dsbd"]
        own = asked(names, temperature=1.0, max_new_tokens=3, seed=2, draws=20)
        found["/draw"] = client.predict("Once upon a time", names, own, api_name="/draw")
    return found
