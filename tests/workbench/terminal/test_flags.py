"""What all commands of the terminal share."""

from workbench.terminal import flags


def test_a_file_is_written_whatever_its_text(tmp_path):
    """Half a character in a text emptied the file that was there, and the command broke down."""
    path = tmp_path / "report.md"
    path.write_text("before")
    flags.write(path, "é \ud800")
    assert path.read_text(encoding="utf-8") == "é \\ud800"
