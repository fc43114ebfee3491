"""Half a minute of `python -m tests.fuzz`, and a test that it would find something."""

from tests import fuzz


def test_odd_values_give_a_result_or_the_documented_error():
    """Odd values raised errors of Python, torch and the tokenizer, some in the midst of the work.

    They were fractions, arrays, half characters, names of 5,000 letters and unknown options."""
    seen = fuzz.fuzz(100)
    assert set(seen) <= {"", "InputError", "ModelError"}
    assert min(seen[""], seen["InputError"]) > 15
