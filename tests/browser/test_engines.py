"""An engine that whoever runs the page has named, beside a decoder."""

from playwright.sync_api import expect

import decoders
from tests.browser.actions import link, panel, run, text_of, unfold_form
from tests.browser.conftest import serving
from tests.workbench.engines.served import a_json, a_stream, chunk, served, usage
from workbench.engines.addresses import LISTED

PROMPT, MODEL = "abc", "tiny"
MARKUP = "<img src=x onerror=window.hacked=1>"


def test_an_engine_is_a_panel_like_a_decoder(visit, pair, tmp_path, monkeypatch):
    """Off at first, ticked, run, judged; and a link that asks for one that nobody named."""
    monkeypatch.setattr(pair.target.config, "name_or_path", MODEL)
    greedy = decoders.generate(pair, PROMPT, "greedy", max_new_tokens=8).tokens
    wrong = [*greedy[:5], (greedy[5] + 1) % pair.vocabulary, *greedy[6:]]

    def answers(call):
        if call.path == "/v1/models":
            return a_json({"data": [{"id": MODEL, "owned_by": "vllm"}]})
        if call.path == "/version":
            return a_json({"version": MARKUP})
        pieces = [chunk("x", wrong[:3]), chunk("y", wrong[3:], finish_reason="length"), usage(8)]
        return a_stream([{**piece, "model": MODEL} for piece in pieces])

    with served(answers) as server:
        monkeypatch.setenv(LISTED, f"fast={server.url} dtype=float32")
        with serving(pair, tmp_path) as (address, host):
            asked = {"decoders": "greedy,engine:other", "temperature": 0, "max_new_tokens": 8}
            page = visit(link(address, PROMPT, **asked))
            expect(page.locator("#notice")).to_contain_text("Engine other is not known here")
            unfold_form(page)
            box = page.locator("#decoders-engines").get_by_role("checkbox")
            expect(box).not_to_be_checked()
            box.check()
            found = host.store.get(run(page))
            engine = panel(page, "engine:fast")
            expect(engine.locator("h3")).to_have_text("Engine fast")
            expect(engine.locator(".claim")).to_have_text(f"vllm {MARKUP}, over HTTP")
            expect(engine.locator(".badge")).to_have_text("≠ fault at token 6")
            expect(engine.locator(".first_token")).to_contain_text("time to first token")
            tokens = found.results[1].alone.tokens
            assert text_of(page, "engine:fast") == "".join(token.text for token in tokens)
            expect(engine.locator(".tok.untold")).to_have_count(8)
            page.get_by_role("button", name="all decoders, each at its measured time").click()
            expect(page.locator('.lane[data-decoder="engine:fast"]')).to_be_visible()
            assert page.evaluate("window.hacked") is None
            assert server.url not in page.content() + found.dumps()
