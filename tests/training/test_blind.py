"""The blind reading of SmolLM2's texts: shuffled, goes on where it was stopped, and is counted."""

import json

import pytest

import decoders
from tests.models import build_pair, build_tokenizer
from training.smollm2 import blind


@pytest.fixture
def folder(tmp_path, monkeypatch):
    asked = ["ab", "ba", "aab", "bb"]
    monkeypatch.setattr(
        decoders, "generate",
        lambda pair, prompt, name, **options: generate(pair, prompt[0]["content"], name, **options),
    )  # fmt: skip
    blind.write_texts(tmp_path, asked, 6, build_pair(tokenizer=build_tokenizer()))
    blind.write_sheet(tmp_path)
    return tmp_path


generate = decoders.generate


def test_forty_questions_of_eight_kinds_are_asked():
    assert len(set(blind.questions(5))) == 40


def test_a_reader_sees_all_texts_in_an_order_that_the_key_knows(folder):
    sheet, key = (folder / "sheet.md").read_text(), json.loads((folder / "key.json").read_text())
    assert not any(name in sheet for name in blind.DECODERS)
    assert {tuple(sorted(order)) for order in key} == {tuple(sorted(blind.DECODERS))}
    assert len({tuple(order) for order in key}) > 1
    for number, (order, part) in enumerate(zip(key, sheet.split("\n## ")[1:], strict=True)):
        texts = json.loads((folder / f"{number:03}.json").read_text())["texts"]
        for letter, name in zip("ABCDE", order, strict=True):
            assert f"**{letter}** {texts[name]['text'].strip()}" in part


def test_verdicts_are_counted_by_decoder(folder):
    key = json.loads((folder / "key.json").read_text())
    letters = ["ABCDE"[order.index("mtad")] for order in key]
    assert "| mtad | 4 of 4 |" in blind.table(folder, letters)
    assert "| speculative | 0 of 4 |" in blind.table(folder, letters)
    for wrong in (letters[1:], [*letters[1:], "F"]):
        with pytest.raises(ValueError, match="verdicts are needed"):
            blind.table(folder, wrong)
