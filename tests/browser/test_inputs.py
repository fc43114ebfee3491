"""Unusable values are refused at their field in one sentence, and nothing typed is lost."""

from playwright.sync_api import Route, expect

from tests.browser.actions import (
    choose_pair,
    fill_prompt,
    link,
    press_run,
    run,
    setting,
    unfold_form,
    unfold_models,
)
from workbench.models.presets import EMBEDDED, PairChoice


def test_faults_are_told_at_their_fields(visit, address):
    page = visit(link(address, "Once", decoders="greedy,mtad", max_new_tokens=8))
    unfold_form(page)
    expect(page.locator("#decoders input:checked")).to_have_count(2)
    fill_prompt(page, "   ")
    press_run(page)
    expect(page.locator("#prompt")).to_contain_text("The prompt is empty")

    unfold_form(page)
    fill_prompt(page, "long " * 200)
    expect(page.locator("#token-count")).to_contain_text("too long")
    press_run(page)
    expect(page.locator("#prompt")).to_contain_text("positions")
    expect(page.locator("#prompt textarea")).to_have_value("long " * 200)

    unfold_form(page)
    fill_prompt(page, "Once")
    setting(page, "temperature").fill("101")
    press_run(page)
    expect(page.locator("#settings")).to_contain_text("temperature must be")
    setting(page, "temperature").fill("1")

    page.locator(".fold summary", has_text="MTAD ·").click()
    threshold = page.locator(".fold").filter(has_text="MTAD ·").get_by_label("threshold")
    threshold.fill("2")
    press_run(page)
    expect(page.locator("#settings")).to_contain_text("threshold must be")
    threshold.fill("0.5")

    for name in ("greedy", "mtad"):
        page.locator(f"#decoders input[name={name}]").uncheck()
    expect(page.locator(".fold summary", has_text="MTAD ·")).to_be_hidden()
    press_run(page)
    expect(page.locator("#decoders")).to_contain_text("No decoder is chosen")

    page.locator("#decoders input[name=greedy]").check()
    run(page)


def test_a_message_stays_until_its_field_changes(visit, address):
    """The answer to a change of the form that came after Run's redrew the fields.

    A message was gone before it was read."""
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


def test_the_first_screen_names_the_pair_in_use(visit, address, pair, tmp_path):
    """The header spoke of two tiny story models whatever pair was loaded."""
    for role in ("target", "draft"):
        getattr(pair, role).save_pretrained(tmp_path / role)
        pair.tokenizer.save_pretrained(tmp_path / role)
    page = visit(link(address, "Once", decoders="greedy", max_new_tokens=4))
    header = page.locator("#says .models")
    expect(header).to_contain_text("tiny story models")
    unfold_models(page)
    choose_pair(page, "own models")
    page.locator("#own-target").get_by_role("textbox").fill(str(tmp_path / "target"))
    page.get_by_role("button", name="Load", exact=True).click()
    size = sum(p.numel() for p in pair.target.parameters())
    expect(header).to_contain_text(
        f"In use: {tmp_path / 'target'} ({size:,} parameters), without a draft model."
    )
    page.locator("#own-draft").get_by_role("textbox").fill(str(tmp_path / "draft"))
    page.get_by_role("button", name="Load", exact=True).click()
    expect(header).to_contain_text(f"In use: {tmp_path / 'target'} + {tmp_path / 'draft'} (")
    expect(header).not_to_contain_text("story")
    page.evaluate("scrollTo(0, 0)")
    expect(header).to_be_in_viewport()
    page.set_viewport_size({"width": 390, "height": 844})  # where it gives way to the picture
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    choose_pair(page, EMBEDDED.name)
    page.get_by_role("button", name="Load", exact=True).click()
    expect(header).to_contain_text("tiny story models")


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
