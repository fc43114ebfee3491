"""The notes of a request's ledger in its rounds."""

from decoders.trace import Ledger, Round


def test_time_is_charged_to_drafting_and_verifying():
    """The rule's own time, after the last pass, belongs to verifying."""
    now = iter([0.0, 2.0, 5.0, 6.0, 7.0, 7.5])
    ledger, first, second = Ledger(lambda: next(now)), Round(0, []), Round(1, [])
    ledger.start()
    ledger.charge("draft")
    ledger.charge("target")
    ledger.settle(first)
    assert (first.draft_seconds, first.verify_seconds, ledger.seconds) == (2.0, 4.0, 6.0)
    ledger.charge("draft")
    ledger.settle(second)
    assert (second.draft_seconds, second.verify_seconds, ledger.seconds) == (1.0, 0.5, 7.5)


def test_a_round_has_the_passes_since_the_last_one():
    ledger, first, second = Ledger(), Round(0, []), Round(1, [])
    ledger.start()
    for model in ("draft", "draft", "target"):
        ledger.count(model)
    ledger.settle(first)
    ledger.count("target")
    ledger.settle(second)
    assert [(e.draft_calls, e.target_calls) for e in (first, second)] == [(2, 1), (0, 1)]
    assert (ledger.draft_calls, ledger.target_calls) == (2, 2)


def test_a_request_that_never_started_took_no_time():
    assert Ledger().seconds == 0.0
