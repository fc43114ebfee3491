"""Whatever a client sends, the server's log holds no traceback after it."""

import json
import urllib.error
import urllib.request

from playwright.sync_api import Locator, expect

from tests.browser.actions import link, panel, run
from tests.opened import whole

GARBAGE = (
    None,
    5,
    "\ud800",
    "x",
    "\x00<img src=x onerror=alert(1)>",
    "\u202e👩‍👩‍👧",
    {"chosen": [1, {"a": 2}]},
    [[["x"]]],
    -1e308,
)


def test_requests_that_no_page_sends_leave_no_traceback(server, capfd):
    """A fuzzed server printed 2,500 of them; the first trial had 25."""
    address, _ = server
    for function in whole(address, "h")["dependencies"]:
        for value in GARBAGE:
            body = {
                "data": [value] * len(function["inputs"]),
                "fn_index": function["id"],
                "session_hash": "h",
            }
            asked = urllib.request.Request(
                f"{address}gradio_api/run/predict",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
            try:
                urllib.request.urlopen(asked, timeout=30).read()
            except urllib.error.HTTPError as error:
                error.read()
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err


def type_half_a_character(field: Locator) -> None:
    """Text that no keyboard makes, but that a program may put into any field."""
    field.evaluate("""(field) => {
        field.value = "\\ud800";
        field.dispatchEvent(new Event("input", { bubbles: true }));
    }""")


def test_half_a_character_in_any_field_leaves_no_traceback(visit, address, capfd):
    """As a prompt, in a search, or as a token it gave "TextEncodeInput must be Union[...]".

    A search told the visitor to set WORKBENCH_DATA to another folder."""
    page = visit(link(address, "Once upon", decoders="greedy", max_new_tokens=4))
    run(page)
    panel(page, "greedy").locator(".wb-paper > .wb-text > .tok").nth(2).click()
    type_half_a_character(page.locator(".wb-branch input.other"))
    page.locator(".wb-branch").get_by_role("button", name="Look it up").click()
    expect(page.locator(".wb-branch")).to_contain_text("half a character")
    page.keyboard.press("Escape")
    type_half_a_character(page.locator("#prompt textarea"))
    expect(page.locator("#token-count")).to_contain_text("0 of")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".validation-error", has_text="lone surrogate")).to_be_visible()
    page.get_by_role("tab", name="Runs").click()
    type_half_a_character(page.locator("#search-runs").locator("textarea, input").first)
    expect(page.get_by_text("No run matches these words")).to_be_visible()
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err
