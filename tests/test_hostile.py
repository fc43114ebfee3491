"""The page withstands a part of the attacks of `python -m tests.hostile`, which tries far more."""

import pytest

from tests.hostile.__main__ import main


@pytest.mark.slow
def test_hostile_input_leaves_no_traceback_no_file_and_every_list(capfd):
    """Each of these gave a traceback, a frozen list or a full disk.

    A list as a preset, a title of megabytes, 150 MB of an upload, a damaged row."""
    if main(["--quick"]):
        pytest.fail("".join(capfd.readouterr()))
