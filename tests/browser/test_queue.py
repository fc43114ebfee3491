"""One device, many visitors: each waits, sees it, and gets what is theirs; who leaves frees it."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from playwright.sync_api import expect

from tests.browser.actions import finished, link, press_run
from tests.browser.conftest import serving

LONG = {"decoders": "greedy,speculative", "max_new_tokens": 400, "repeats": 500}


def test_ten_visitors_each_get_their_own(visit, address):
    visitors = [Client(address, verbose=False) for _ in range(9)]
    page = visit(link(address, "visitor 9", decoders="greedy", max_new_tokens=8))

    def ask(i: int) -> dict:
        settings = {"max_new_tokens": 48, "seed": i}
        return visitors[i].predict(f"visitor {i}", ["greedy", "mtad"], settings, api_name="/compare")

    with ThreadPoolExecutor(9) as pool:
        answers = pool.map(ask, range(9))
        press_run(page)
        expect(page.locator("#progress")).to_contain_text("queue")
        runs = list(answers)
    assert [run["prompt"] for run in runs] == [f"visitor {i}" for i in range(9)]
    assert all(len(run["results"]) == 2 for run in runs)
    assert [run["settings"]["seed"] for run in runs] == list(range(9))
    finished(page)
    expect(page.locator("#panels .prompt").first).to_have_text("visitor 9")


def test_a_closed_tab_frees_the_device(visit, address):
    page = visit(link(address, "Once", **LONG))
    press_run(page)
    expect(page.locator("#progress")).to_contain_text("token")
    page.context.close()
    client = Client(address, verbose=False)
    began = time.monotonic()
    client.predict("next", ["greedy"], {"max_new_tokens": 4}, api_name="/compare")
    assert time.monotonic() - began < 20


def test_a_full_queue_turns_visitors_away(pair, tmp_path):
    with serving(pair, tmp_path, queue_size=1) as (address, _):
        visitors = [Client(address, verbose=False) for _ in range(4)]
        settings = {"max_new_tokens": 300, "repeats": 5}
        jobs = [v.submit("x", ["greedy"], settings, api_name="/compare") for v in visitors]
        errors = [job.exception(timeout=60) for job in jobs]
    assert any(error is None for error in errors)
    assert any("full" in str(error) for error in errors if error)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("", ["greedy"], {}), "empty"),
        (("Once", [], {}), "decoder"),
        (("Once", ["gredy"], {}), "greedy"),
        (("Once", ["greedy"], {"max_new_tokens": 10**6}), "max_new_tokens"),
        (("Once", ["mtad"], {"mtad": {"beans": 3}}), "beams"),
    ],
)
def test_the_endpoint_says_what_is_wrong(address, arguments, word):
    with pytest.raises(AppError, match=word):
        Client(address, verbose=False).predict(*arguments, api_name="/compare")


def test_limits_of_a_public_place(pair, tmp_path):
    with serving(pair, tmp_path, public=True, max_new_tokens=16, max_repeats=2) as (address, _):
        client = Client(address, verbose=False)
        with pytest.raises(AppError, match="At most 16"):
            client.predict("Once", ["greedy"], {"max_new_tokens": 17}, api_name="/compare")
        assert client.predict("Once", ["greedy"], {"max_new_tokens": 16}, api_name="/compare")["results"]


def test_only_compare_is_documented(address):
    named = Client(address, verbose=False).view_api(return_format="dict")["named_endpoints"]
    assert list(named) == ["/compare"]
