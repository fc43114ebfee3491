"""Reference documents in files."""

import pytest

import decoders
from decoders import InputError
from decoders.inputs import LONGEST_REFERENCE


def test_text_in_utf_8_is_read_as_it_is(tmp_path):
    path = tmp_path / "story.txt"
    path.write_bytes("\ufeffOnce, a café.\r\n".encode())
    assert decoders.read_reference(path) == "Once, a café.\r\n"
    assert decoders.read_reference(str(path)) == decoders.read_reference(path)


@pytest.mark.parametrize(("content", "complaint"), [
    (b"", "is empty; give a file with some text"),
    (b"\xff\xfe\x00h", "is not text in UTF-8; save it as plain text first"),
    (b"PK\x03\x04\x00\x00", "is not text: it holds zero bytes; save it as plain text first"),
    (b"a" * (LONGEST_REFERENCE + 1), "is larger than 16 MB; give a shorter reference document"),
], ids=["empty", "utf-16", "zip", "huge"])  # fmt: skip
def test_what_is_no_text_is_refused(tmp_path, content, complaint):
    path = tmp_path / "reference"
    path.write_bytes(content)
    with pytest.raises(InputError, match=complaint) as error:
        decoders.read_reference(path)
    assert str(path) in str(error.value)


def test_what_is_no_file_is_refused(tmp_path):
    """/dev/zero has no end and says that its size is 0: it was read until the memory was full.
    /dev/null stands in for it. What is no path at all was a TypeError of pathlib."""
    for path, complaint in (
        (tmp_path / "nowhere.txt", "No such file or directory; give the path of a text file"),
        (tmp_path, "Is a directory; give the path of a text file"),
        ("/dev/null", "it is a device or a pipe; give the path of a text file"),
        (5, "is no path; give the path of a text file"),
        ("a\0b", "is no path; give the path of a text file"),
    ):
        with pytest.raises(InputError, match=complaint):
            decoders.read_reference(path)
