"""`python -m workbench judge`: a draft as text or as ids, rules by name, and bad input."""


def test_a_draft_its_rules_and_bad_input(call):
    status, out, _ = call("judge", "abab", "[5, 9]", "--temperature", "0.7")
    assert status == 0
    assert out.startswith("Draft:")
    for title in ("Speculative", "Match", "Block verification", "Typical acceptance", "MTAD"):
        assert title in out
    status, out, _ = call("judge", "abab", "[5, 9]", "--rules", "match")
    assert (status, "Block" in out) == (0, False)
    status, _, error = call("judge", "abab", "[5, 9]", "--rules", "blok")
    assert (status, error.count("\n")) == (2, 1)
    assert "did you mean 'block'?" in error
