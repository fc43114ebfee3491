"""One device, many visitors: each waits, sees the queue, and gets a result; leaving frees it."""

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
from gradio_client import Client
from playwright.sync_api import expect

from tests.browser.actions import finished, link, press_run

ONCE = {"timings": 1}
OTHERS = 4  # visitors beside that of the page


def patient(address: str) -> Client:
    """A program that does not give up on a busy machine after five seconds without a word."""
    return Client(address, verbose=False, httpx_kwargs={"timeout": 60})


def test_visitors_each_get_their_own(visit, server):
    """The device stays busy until all have asked. On a busy machine, the visitor of the page was
    sometimes served before the others had asked."""
    address, host = server
    visitors = [patient(address) for _ in range(OTHERS)]
    page = visit(link(address, "visitor of the page", decoders="greedy", max_new_tokens=8))
    finished(page)
    expect(page.locator("#prompt textarea")).to_have_value("visitor of the page")

    def ask(i: int) -> dict:
        settings = {"max_new_tokens": 12, "seed": i, **ONCE}
        return visitors[i].predict(
            f"visitor {i}", ["greedy", "mtad"], settings, api_name="/compare"
        )

    with ThreadPoolExecutor(OTHERS) as pool:
        with host.device.turn:  # before any of them asks: a turn goes to whoever comes first
            answers = pool.map(ask, range(OTHERS))
            began = time.monotonic()
            while httpx.get(f"{address}gradio_api/queue/status").json()["queue_size"] < 3:
                assert time.monotonic() - began < 50
                time.sleep(0.1)
            press_run(page)
            expect(page.locator("#progress")).to_contain_text("ahead of you")
        runs = list(answers)
    assert [run["prompt"] for run in runs] == [f"visitor {i}" for i in range(OTHERS)]
    assert all(len(run["results"]) == 2 for run in runs)
    assert [run["settings"]["seed"] for run in runs] == list(range(OTHERS))
    finished(page)
    expect(page.locator("#panels .prompt").first).to_have_text("visitor of the page")


def test_who_waits_reads_one_message_with_the_number_ahead(visit, server):
    """ "queue: 2/2 | 1.1s" beside "Waiting for the device." did not say how many are ahead."""
    address, host = server
    with host.device.turn:  # the first to press Run has the queue's place, and gets no further
        pages = [
            visit(link(address, f"visitor {i}", decoders="greedy", max_new_tokens=4))
            for i in range(3)
        ]
        for page, button in zip(pages, ("#stop", "#leave", "#leave"), strict=True):
            expect(page.locator(button)).to_be_visible()
        for i in (1, 2):
            line = pages[i].locator("#progress")
            expect(line.get_by_role("status")).to_have_text(
                f"Waiting for the device: {i} ahead of you."
            )
            assert line.inner_text().strip() == f"Waiting for the device: {i} ahead of you."
    for page in pages:
        finished(page)
