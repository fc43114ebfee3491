"""The recorded runs are those of the shipped pair.

If one of these tests fails, run `make record` on a quiet machine."""

import pytest

import decoders
from decoders import catalog
from decoders.engine.loading.load import EMBEDDED
from workbench.kinds.comparison import Comparison
from workbench.runs.recorded import checksum, drafters, recordings
from workbench.studies.settings import Settings

AGAIN = "run `make record`: the recorded runs no longer show what this pair does"
COMPARED = [each for each in recordings() if each.run.kind == Comparison.kind]


def test_there_is_a_gallery_that_opens_with_a_comparison():
    assert 6 <= len(recordings()) <= 9
    assert recordings()[0].run.kind == Comparison.kind
    assert {each.run.kind for each in recordings()} == {"comparison", "batch", "draw"}


@pytest.mark.parametrize("recording", recordings(), ids=lambda each: each.title)
def test_weights_are_those_that_were_recorded(recording):
    assert recording.weights == checksum(EMBEDDED, drafters(recording.run)), AGAIN


@pytest.mark.parametrize("recording", recordings(), ids=lambda each: each.title)
def test_nothing_failed_and_where_and_when_is_said(recording):
    run = recording.run
    assert not any(result.errors for result in run.results)
    assert not run.cancelled
    assert run.environment["device_name"]
    assert run.environment["target"]["parameters"] > run.environment["draft"]["parameters"]


def test_the_same_seed_still_writes_the_same_tokens():
    """The decoder with the fewest rounds in each comparison, and all decoders of the first one."""
    pair = decoders.load_pair(device="cpu")
    checked = [(COMPARED[0], result) for result in COMPARED[0].run.results]
    for each in COMPARED[1:]:
        checked.append((each, min(each.run.results, key=lambda r: len(r.alone.rounds))))
    for recording, result in checked:
        run = recording.run
        settings = Settings.from_json(run.settings)
        method = catalog[result.decoder](**run.settings[result.decoder])
        found = decoders.generate(
            pair, run.study["prompt"], method, **{**settings.decoding, "seed": result.seed}
        )
        assert found.tokens == [token.id for token in result.alone.tokens], (
            f"{result.decoder}: {AGAIN}"
        )


def test_the_refrain_is_copied():
    """With another pair look-up saved no pass, under "copying it makes good drafts"."""
    (refrain,) = [each.run for each in recordings() if each.title == "A refrain that is copied"]
    (lookup,) = [result for result in refrain.results if result.decoder == "lookup"]
    assert lookup.metrics["block_efficiency"] > 2, AGAIN
