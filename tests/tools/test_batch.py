"""The measurement of the Batch tab: its files."""

from tools.batch import METHODS, Bench, options


def test_the_folder_for_the_runs_is_made_before_the_measurement(tmp_path):
    """A folder that was not there was an error after the measurement."""
    folder = tmp_path / "new" / "runs"
    Bench.of(options(None, tuple(METHODS)).parse_args(["--json", str(folder)]))
    assert folder.is_dir()
