"""What visitors do, in their words."""

import re
from urllib.parse import urlencode

from playwright.sync_api import Locator, Page, expect

from workbench.runs.store import Recording

PANEL = ".wb-panel"


def link(address: str, prompt: str, **settings: object) -> str:
    """The address that fills the form and runs it; each decoder is timed once unless `settings`
    differ."""
    return f"{address}?{urlencode({'prompt': prompt, 'timings': 1, **settings})}"


def fill_prompt(page: Page, text: str) -> None:
    page.locator("#prompt textarea").fill(text)


def press_run(page: Page) -> None:
    """Press Run, which the open side sheet lies over."""
    close_form(page)
    page.get_by_role("button", name="Run", exact=True).click()


def run(page: Page) -> str:
    """Press Run, unless a link runs by itself, wait for the end, and return the id of the run."""
    by_itself = "prompt=" in page.url and not page.evaluate("window.ran")
    if by_itself:
        expect(page).to_have_url(re.compile(r"\?run="))
    else:
        link = page.locator("#run-link a")
        before = (link.first.text_content() or "") if link.count() else ""
        press_run(page)
        # of the run that was shown, which stays until this one has its texts
        if before.startswith("run "):
            expect(page.locator("#run-link")).not_to_contain_text(before.removeprefix("run "))
    page.evaluate("window.ran = true")
    return finished(page)


def finished(page: Page, tab: str = "") -> str:
    """Wait for the end of the run in a tab ("" for Compare, "batch-") and return its id."""
    expect(page.locator(f"#{tab}progress")).to_contain_text(
        re.compile("Done|Stopped"), timeout=60_000
    )
    kept = page.locator(f"#{tab}run-link a").first
    expect(kept).to_contain_text("run ")
    return (kept.text_content() or "").removeprefix("run ")


def open_recorded(page: Page, recording: Recording) -> None:
    """Choose an example of the tab that compares; a run that is none has an address."""
    page.get_by_role("tab", name="Compare").click()
    example = page.locator("#gallery").get_by_role("button", name=recording.title, exact=True)
    if example.count():
        example.click()
    else:
        page.goto(f"{page.url.split('?')[0]}?run={recording.run.id}")
        expect(page.locator("#run")).to_be_enabled()
    prefix = {"batch": "batch-", "draw": "draw-"}.get(recording.run.kind, "")
    expect(page.locator(f"#{prefix}run-link")).to_contain_text(recording.run.id)
    unfold_texts(page)


def unfold_texts(page: Page) -> None:
    """Show the texts of all decoders whole."""
    page.evaluate(
        """document.querySelectorAll('#panels .open-text[aria-expanded="false"]')
            .forEach((button) => button.click())"""
    )


def panel(page: Page, decoder: str) -> Locator:
    """The text of a decoder, whole, with its figures."""
    unfold_texts(page)
    return page.locator(f'#panels {PANEL}[data-decoder="{decoder}"]')


def open_lab(page: Page, name: str) -> None:
    """Open one of the tabs in the tab Lab."""
    page.get_by_role("tab", name="Lab").click()
    page.get_by_role("tab", name=name).filter(visible=True).first.click()


def text_of(page: Page, decoder: str) -> str:
    """The text of a panel, without the refused drafts that it may show."""
    return page.evaluate(
        (
            '(box) => [...box.querySelectorAll(":scope > .tok:not(.refused)")].map((t) => '
            't.textContent).join("")'
        ),
        panel(page, decoder).locator(".wb-paper > .wb-text").element_handle(),
    )


def open_share(page: Page) -> None:
    """Open the menu with the links to the run on screen and its files."""
    page.locator("#run-link summary").click()


def unfold_form(page: Page) -> None:
    """Open the side sheet with decoders and settings."""
    if not page.locator("#form").is_visible():
        page.locator("#open-sheet").click()
    expect(page.locator("#form")).to_be_visible()


def close_form(page: Page) -> None:
    if page.locator("#form").is_visible():
        page.keyboard.press("Escape")
    expect(page.locator("#form")).to_be_hidden()


def unfold_models(page: Page) -> None:
    """Show the choice of models, which researchers find under the texts."""
    for fold in ("#researchers", "#models"):
        button = page.locator(f"{fold} > button")
        if "open" not in (button.get_attribute("class") or ""):
            button.click()


def choose_pair(page: Page, name: str) -> None:
    """Choose a pair from the long list under Models by typing its name."""
    page.get_by_label("Pair", exact=True).fill(name)
    page.get_by_role("option", name=name).click()


def setting(page: Page, label: str) -> Locator:
    """The input of a setting of the opened form. The label must match whole: the decoders'
    summaries speak of settings too."""
    return page.locator("#form").get_by_label(label, exact=True)


def toggle(page: Page, group: str, label: str) -> None:
    """Tick a box of a group, or untick it."""
    page.locator(f"#{group} label").filter(
        has_text=re.compile(rf"^\s*{re.escape(label)}\s*$")
    ).click()
