"""`python -m workbench advise`."""


def test_it_ranks_the_decoders(call):
    status, out, _ = call(
        "advise", "--count", "1", "--max-new-tokens", "8", "--decoders", "greedy", "--no-save"
    )
    assert status == 0
    assert "predicted x greedy" in out
    assert "The best exact decoder is speculative" in " ".join(out.split())
