"""`python -m workbench advise`, with what it asks about load."""

import pytest

SHORT = ("advise", "--count", "1", "--max-new-tokens", "8", "--decoders", "greedy", "--no-save")


def test_it_prints_loads_and_the_gpu(call):
    status, out, _ = call(
        *SHORT, "--loads", "1,2", "--gpu-bandwidth", "3350", "--gpu-tflops", "989"
    )
    assert status == 0
    assert "On this machine, by measurement" in out
    assert "off by" in out
    assert "For a GPU of 3,350 GB/s and 989 TFLOP/s" in out


def test_load_is_left_out_if_no_loads_are_named(call):
    status, out, _ = call(*SHORT, "--loads", "")
    assert status == 0
    assert "at once" not in out


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--loads", "0"), "whole numbers from 1 to 64"),
        (("--loads", "1,x"), "whole numbers from 1 to 64"),
        (("--gpu-bandwidth", "3350"), "give both, or neither"),
        (("--gpu-bandwidth", "inf", "--gpu-tflops", "1"), "gpu_bandwidth must be"),
        (("--gpu-bandwidth", "fast", "--gpu-tflops", "1"), "gpu_bandwidth must be"),
    ],
)
def test_bad_figures_are_refused_in_a_sentence(call, flags, says):
    status, out, err = call(*SHORT, *flags)
    assert (status, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_its_help_names_the_loads_that_are_usual(call):
    status, out, _ = call("advise", "--help")
    assert status == 0
    assert "1,2,4,8,16" in out
