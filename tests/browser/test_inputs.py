"""Unusable values are refused at their field in one sentence, and nothing typed is lost."""

from playwright.sync_api import Route, expect

from tests.browser.actions import (
    choose_pair,
    fill_prompt,
    link,
    press_run,
    run,
    unfold_form,
    unfold_models,
)
from workbench.models.presets import PairChoice


def test_a_message_stays_until_its_field_changes(visit, address):
    """The answer to a change of the form that came after Run's redrew the fields. A message was
    gone before it was read."""
    page = visit(link(address, "Once", decoders="greedy,mtad", max_new_tokens=8))
    run(page)
    unfold_form(page)
    expect(page.locator("#decoders input:checked")).to_have_count(2)
    decoders, prompt = page.locator("#decoders"), page.locator("#prompt")
    held: list[Route] = []
    holding = True
    page.route(
        "**/gradio_api/run/**", lambda route: held.append(route) if holding else route.continue_()
    )
    for name in ("greedy", "mtad"):
        decoders.locator(f"input[name={name}]").uncheck()
    fill_prompt(page, " ")
    holding = False
    press_run(page)
    expect(decoders).to_contain_text("No decoder is chosen")
    for route in held:
        route.continue_()
    page.wait_for_timeout(1000)  # until the answers, and what they set off, are there
    expect(decoders).to_contain_text("No decoder is chosen")
    expect(prompt).to_contain_text("The prompt is empty")

    fill_prompt(page, "Twice")
    expect(prompt).not_to_contain_text("The prompt is empty")
    expect(decoders).to_contain_text("No decoder is chosen")
    decoders.locator("input[name=greedy]").check()
    expect(decoders).not_to_contain_text("No decoder is chosen")


def test_a_refused_pair_leaves_the_one_in_use(visit, server):
    address, host = server
    page = visit(link(address, "Once", decoders="greedy", max_new_tokens=4))
    run(page)  # whose results push the list down
    unfold_models(page)
    choose_pair(page, "own models")
    target = page.locator("#own-target").get_by_role("textbox")
    target.fill("/no/such/folder")
    page.get_by_role("button", name="Load", exact=True).click()
    expect(page.locator("#pair-note [role=alert]")).to_contain_text("In use: embedded pair")
    assert host.pairs.peek(PairChoice("/no/such/folder")) is None
    expect(target).to_have_value("/no/such/folder")
    run(page)


def test_run_waits_until_the_page_shows_what_its_address_asks_for(chromium, server):
    """A click before that ran the settings of an untouched page, and then the form showed
    others."""
    address, host = server
    context = chromium.new_context()
    page, held = context.new_page(), []
    page.route("**/gradio_api/run/**", lambda route: held.append(route))
    page.goto(link(address, "Soon", decoders="greedy", max_new_tokens=4), wait_until="load")
    expect(page.locator("#run")).to_be_disabled()
    page.wait_for_timeout(500)
    page.unroute("**/gradio_api/run/**")  # which lets go what was held
    assert held
    assert host.store.get(run(page)).title == "Soon"
    context.close()
