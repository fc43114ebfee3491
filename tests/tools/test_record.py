"""The recorded runs: `python -m tools.record` makes every study that it records."""

import pytest

from tools.record import ENTRIES


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_recording_is_a_study_with_jobs(entry):
    """The tool could not be started: it imported a name that had gone."""
    assert entry.study({"timings": 1}).jobs()
