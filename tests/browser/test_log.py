"""Whatever a visitor types, the server's log holds no traceback after it."""

from playwright.sync_api import Locator, expect

from tests.browser.actions import link, panel, press_run, run, unfold_form


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
    unfold_form(page)
    expect(page.locator("#token-count")).to_contain_text("0 of")
    press_run(page)
    expect(page.locator(".wb-fault", has_text="lone surrogate")).to_be_visible()
    page.get_by_role("tab", name="Runs").click()
    type_half_a_character(page.locator("#search-runs").locator("textarea, input").first)
    expect(page.get_by_text("No run matches these words")).to_be_visible()
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err
