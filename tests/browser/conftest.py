"""A real Chromium on a real server with a tiny pair. No request may leave 127.0.0.1, and the
console must stay free of errors."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlparse

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # before Gradio is imported

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from tests.workbench.conftest import byte_tokenizer, pair, run, unmetered  # noqa: F401 - fixtures
from tests.workbench.page.conftest import a_host
from workbench.page.host import Host
from workbench.page.layout import build, launch_options

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]  # fmt: skip
expect.set_options(timeout=30_000)


@contextmanager
def serving(pair, folder: Path, **limits) -> Iterator[tuple[str, Host]]:  # noqa: F811
    """The workbench on a free port, with its runs in `folder`: its address and its host."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    host = a_host(pair, folder, **limits)
    page = build(host)
    page.launch(
        **launch_options(host), server_name="127.0.0.1", server_port=port, prevent_thread_lock=True,
        quiet=True,
    )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}/", host
    finally:
        page.close(verbose=False)


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def server(pair, folder) -> Iterator[tuple[str, Host]]:  # noqa: F811
    with serving(pair, folder) as running:
        yield running


@pytest.fixture(scope="session")
def address(server) -> str:
    return server[0]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    # The shell draws no window around the pages: a fifth less time.
    path = (
        os.environ.get("CHROMIUM")
        or shutil.which("chromium-headless-shell")
        or shutil.which("chromium")
    )
    if not path:
        pytest.fail("No Chromium: `apt-get install -y chromium`, or set CHROMIUM=/path/to/it.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def visits(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """A function `visit(address, width=..., height=...)` that opens a page as another visitor. With
    `touch` it is a visitor on a phone. Errors of the page are reported at the end."""
    contexts, sins = [], []

    def guard(request: Request) -> None:
        # none is that of blob: and data:
        if urlparse(request.url).hostname not in ("127.0.0.1", None):
            sins.append(f"request to {request.url}")

    def visit(address: str, width: int = 1400, height: int = 1000, touch: bool = False) -> Page:
        screen = {
            "viewport": {"width": width, "height": height},
            "has_touch": touch,
            "is_mobile": touch,
            "reduced_motion": "reduce",  # else the picture plays first
        }
        contexts.append(chromium.new_context(**screen, accept_downloads=True))
        page = contexts[-1].new_page()
        page.on("request", guard)
        page.on("console", lambda message: sins.append(message.text) if is_sin(message) else None)
        page.on("pageerror", lambda error: sins.append(str(error)))
        page.goto(address)
        # the settings of the address have arrived
        expect(page.locator("#run:enabled, #stop, #leave").first).to_be_attached()  # in any tab
        return page

    yield visit
    said = list(sins)  # nobody reads what a page says of its streams while its window closes
    for context in contexts:
        context.close()
    assert not said


def is_sin(message: ConsoleMessage) -> bool:
    """Whether a console message is an error. The answer 422 is not: with it Gradio carries a
    message to a field."""
    return message.type == "error" and "422 (Unprocessable" not in message.text


@pytest.fixture
def visit(chromium) -> Iterator[Callable[..., Page]]:
    with visits(chromium) as visit:
        yield visit


@pytest.fixture(scope="module")
def page(chromium, address) -> Iterator[Page]:
    """One page for all tests of a file that can share it: most tests are quicker than loading."""
    with visits(chromium) as visit:
        yield visit(address)


# The twelve visits that `make test` makes; EVERYWHERE=1 makes all of them.
VISITS = {
    "test_opening": {
        "test_the_first_screen_is_one_picture_and_few_words",
        "test_a_phones_first_screen_has_the_prompt_run_and_the_picture",
        "test_back_and_forward_walk_through_examples_and_runs",
    },
    "test_compare": {
        "test_one_button_five_panels",
        "test_every_word_of_a_run_of_ones_own_is_read_off_the_picture",
        "test_what_a_visitor_writes_stays_text",
    },
    "test_bare": {
        "test_without_weights_it_starts_and_says_what_to_do",
        "test_on_zero_gpu_the_same_page_runs_and_agents_too",
    },
    "test_batch": {"test_every_scheme_is_measured_shown_taken_home_and_reopened"},
    "test_draw": {"test_trees_side_by_side_with_what_they_say_on_every_screen"},
    "test_experiments": {"test_a_plan_runs_is_shown_and_is_there_after_a_reload"},
    "test_queue": {"test_visitors_each_get_their_own"},
}
BLANK = {"test_picture"}  # its drawings stand on an empty page, which takes no server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("EVERYWHERE"):
        return
    for item in items:
        if item.path.parent != Path(__file__).parent or item.path.stem in BLANK:
            continue
        if getattr(item, "originalname", item.name) not in VISITS.get(item.path.stem, ()):
            item.add_marker(pytest.mark.skip(reason="one of the many visits of EVERYWHERE=1"))
