"""What a chat template wrote is drawn as such in panels and picture, here of an exported file."""

import torch
from playwright.sync_api import expect

from tests.browser.actions import unfold_texts
from tests.models import build_chat_tokenizer, build_pair
from tests.workbench.conftest import finished
from workbench.kinds.comparison import Comparison
from workbench.show.view import WRITERS
from workbench.studies.settings import Settings


def test_what_the_template_wrote_is_set_apart(chromium, unmetered, tmp_path):
    """The prompt of a chat stood in a panel without its template: nobody saw what the model read,
    nor which of its tokens a visitor had not typed."""
    tokenizer = build_chat_tokenizer()
    pair = build_pair(torch.float32, tokenizer, vocab_size=len(tokenizer), eos=[])
    data = {"decoders": ["greedy", "mtad"], "max_new_tokens": 4, "chat_template": "auto"}
    run = finished(pair, Comparison("Who <b>are</b>\nyou?", Settings.from_json(data)), unmetered)
    report = tmp_path / "run.html"
    report.write_text(WRITERS["html"](run), encoding="utf-8")
    page = chromium.new_page()
    page.goto(report.as_uri())
    unfold_texts(page)
    page.locator(".wb-panel .prompt .whole").first.click()
    prompt = page.locator(".wb-panel .prompt").first
    prompt.get_by_role("button").click()
    written = prompt.locator(".template")
    expect(written).to_have_text(["<|im_start|>user", "<|im_end|> <|im_start|>assistant"])
    expect(written.first).to_have_attribute("title", "written by the chat template")
    assert prompt.evaluate("(span) => span.textContent") == (
        "<|im_start|>user\nWho <b>are</b>\nyou?<|im_end|>\n<|im_start|>assistant\n"
    )
    shade = "(span) => getComputedStyle(span).backgroundColor"
    assert written.first.evaluate(shade) != prompt.evaluate(shade)
    lead = page.locator("#picture .prompt").first
    lead.get_by_role("button").click()
    expect(lead.locator(".template")).to_have_count(2)
    page.close()
