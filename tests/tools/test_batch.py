"""The measurement of batches for notes: what it prints and the runs that it keeps."""

from tools.batch import main


def test_it_prints_a_table_and_keeps_the_run_in_a_new_folder(tmp_path, capsys):
    """A folder that was not there was an error after the measurement; later every table was, since
    the figures had lost a method that it called."""
    folder = tmp_path / "new" / "runs"
    given = ["--only", "lookup", "--sizes", "1", "2", "--prompts", "2", "--tokens", "4", "--json"]
    main([*given, str(folder)])
    assert [file.name for file in folder.iterdir()] == ["lookup.json"]
    printed = capsys.readouterr().out
    assert "### lookup on refrains" in printed
    assert "over vanilla, prompts left out: " in printed
    assert " at batch 2." in printed
