import pytest

import decoders
from workbench.measuring.detokenise import Pieces
from workbench.measuring.transcript import Transcript, finite


@pytest.mark.parametrize("name", list(decoders.catalog))
def test_a_transcript_says_what_the_library_says(pair, byte_tokenizer, name):
    """Every decoder: the same tokens, fates, numbers and counts; pieces add up to the text."""
    prompt = byte_tokenizer("abc abc abc").input_ids
    transcript = Transcript(Pieces(byte_tokenizer), len(prompt) - 1)
    for event in decoders.stream(pair, prompt, name, max_new_tokens=20, seed=3):
        if event.round is not None:
            transcript.add(event.round)
            assert len(transcript.tokens) == event.keep + len(event.append)
    result = event.result
    transcript.finish(result.text)
    assert [t.id for t in transcript.tokens] == result.tokens
    assert "".join(t.text for t in transcript.tokens) == result.text
    assert [(t.node, t.fate, t.round, t.p, t.q, t.u, t.log_p) for t in transcript.tokens] == [
        (t.node, t.fate.value, t.round, t.p, t.q, t.u, t.log_p) for t in result.trials
    ]
    assert [[(a.id, a.p) for a in t.alternatives] for t in transcript.tokens] == [
        list(t.alternatives) for t in result.trials
    ]
    for mine, theirs in zip(transcript.rounds, result.rounds, strict=True):
        assert [(t.node, t.parent, t.token, t.fate) for t in mine.trials] == [
            (t.node, t.parent, t.token, t.fate.value) for t in theirs.trials
        ]
        assert all(t.text for t in mine.trials)
        assert (mine.keep, mine.nodes, mine.target_calls) == (
            theirs.keep,
            theirs.nodes,
            theirs.target_calls,
        )


def test_half_a_character_at_the_end_belongs_to_the_last_token(pair, byte_tokenizer):
    transcript = Transcript(Pieces(byte_tokenizer), 0)
    for event in decoders.stream(pair, [1], "greedy", max_new_tokens=1):
        if event.round is not None:
            transcript.add(event.round)
    shown = transcript.tokens[0].text
    transcript.finish(shown + "\ufffd")
    assert transcript.tokens[0].text == shown + "\ufffd"


def test_what_json_cannot_hold_becomes_none():
    assert [finite(x) for x in (1.5, 0.0, None, float("inf"), float("nan"))] == [
        1.5,
        0.0,
        None,
        None,
        None,
    ]
