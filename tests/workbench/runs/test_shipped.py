"""Batches measured beforehand: what the bench writes comes back, and the tab shows it, if there is any."""

import gradio as gr
import pytest

from tests.models import build_pair, build_tokenizer
from workbench.measuring.batch import measure
from workbench.page.parts import batch_card
from workbench.runs import shipped as batch_measured
from workbench.runs.shipped import Measured, shipped
from workbench.show.quantities import significant
from workbench.studies.batch import BatchSettings
from workbench.studies.prompts import Prompt, PromptSet
from workbench.studies.settings import Settings


@pytest.fixture(scope="module")
def found() -> Measured:
    prompts = PromptSet("few", (Prompt("abab", "few, line 1"), Prompt("one two one", "few, line 2")))
    settings = Settings.from_json({"decoders": ["lookup"], "max_new_tokens": 4, "temperature": 0.0})
    *_, ended = measure(build_pair(tokenizer=build_tokenizer()), prompts, BatchSettings(settings, (1, 2)))
    return Measured("python -m bench.batch --sizes 1 2", (0.5, 0.25, 0.1), (ended.run,))


def test_what_was_written_comes_back(found, tmp_path, monkeypatch):
    monkeypatch.setattr(batch_measured, "SHIPPED", tmp_path / "measured.json")
    assert shipped() is None
    (tmp_path / "measured.json").write_text(found.to_json(), encoding="utf-8")
    assert shipped().to_json() == found.to_json()
    assert shipped().runs[0].cells == found.runs[0].cells


def shown(found: Measured) -> str:
    """The words of the card."""
    with gr.Blocks() as page:
        batch_card.lay_out(found)
    return "\n".join(block.value for block in page.blocks.values() if isinstance(block, gr.Markdown))


def test_the_card_says_what_was_measured_and_where(found):
    words = shown(found)
    speed = found.runs[0].speed("lookup", 2, "vanilla", decoding=True)
    for part in (
        "| vanilla |",
        "lookup on 2 few, 4 tokens each",
        "`python -m bench.batch --sizes 1 2`",
        "0.50, 0.25, 0.10",
        f"{significant(speed)} (",
    ):
        assert part in words
    assert found.runs[0].environment["device_name"] in words
    assert "tokens a round, mean of 2 samples" in words


def test_what_is_shipped_can_be_shown():
    if measured := shipped():
        assert "| vanilla |" in shown(measured)
