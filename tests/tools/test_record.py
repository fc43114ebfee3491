"""The recorded runs: `python -m tools.record` makes every study that it records."""

import pytest

from tools.record import ENTRIES


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_recording_is_a_study_with_jobs(entry):
    """The tool could not be started: it imported a name that had gone."""
    assert entry.study({"timings": 1}).jobs()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_no_recording_depends_on_the_clock(entry):
    """The story was recorded with a draft length that timings choose, and its seed then wrote other
    tokens."""
    lengths = {m.name: getattr(m, "draft_length", 0) for m in entry.study({}).settings.methods}
    lengths.pop("speculative_beam_search", None)  # writes beam search's text whatever it drafts
    assert "auto" not in lengths.values()
