import pytest

import decoders
from tests.pairwise import part
from workbench.measuring.transcript import Pieces, Place, Transcript, finite


@pytest.mark.parametrize("name", part(decoders.catalog))
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
        for name in ("keep", "nodes", "target_calls"):
            assert getattr(mine, name) == getattr(theirs, name)


def test_half_a_character_at_the_end_belongs_to_the_last_token(pair, byte_tokenizer):
    transcript = Transcript(Pieces(byte_tokenizer), 0)
    for round_ in decoders.generate(pair, [1], "greedy", max_new_tokens=1).rounds:
        transcript.add(round_)
    shown = transcript.tokens[0].text
    transcript.finish(shown + "\ufffd")
    assert transcript.tokens[0].text == shown + "\ufffd"


def test_what_json_cannot_hold_becomes_none():
    assert [finite(x) for x in (1.5, None, float("inf"), float("nan"))] == [1.5, None, None, None]


def pieces_of(tokenizer, tokens):
    pieces, place, found = Pieces(tokenizer), Place(), []
    for token in tokens:
        piece, place = pieces.extend(place, token)
        found.append(piece)
    return found


@pytest.mark.parametrize(
    "text",
    ["Once upon", "naïve café", "🦊🦊!", "中文字", "👩‍👩‍👧 a", " \n\tx", "مرحبا", "a\u0301b"],
)
def test_pieces_add_up_to_the_text_and_a_character_comes_whole_with_its_last_token(
    byte_tokenizer, text
):
    tokens = byte_tokenizer(text).input_ids
    found = pieces_of(byte_tokenizer, tokens)
    assert "".join(found) == text
    assert len(found) == len(text.encode())
    assert [p for p in found if p] == list(text)


def test_bytes_that_are_no_character_are_shown_once_the_next_one_tells(byte_tokenizer):
    start, space, letter = byte_tokenizer("🦊").input_ids[0], *byte_tokenizer(" a").input_ids
    found = pieces_of(byte_tokenizer, [start, start, letter, space])
    assert found == ["", "", "\ufffd\ufffda", " "]


def test_a_special_token_shows_nothing_and_takes_nothing_from_its_neighbours(byte_tokenizer):
    a, b = byte_tokenizer("ab").input_ids
    assert pieces_of(byte_tokenizer, [a, 0, b]) == ["a", "", "b"]
    assert Pieces(byte_tokenizer).label(Place(), 0) == "<end>"


def test_a_leading_space_is_kept_where_the_tokenizer_drops_it_at_the_start_of_a_decoding():
    """Llama 2's tokenizer decodes "▁the" alone to "the": pieces decoded one by one would run words
    together."""

    class Dropping:
        words = ("▁once", "▁upon", "▁a", "▁time")

        def decode(self, ids, skip_special_tokens, clean_up_tokenization_spaces):
            return "".join(self.words[i] for i in ids).replace("▁", " ").removeprefix(" ")

    assert pieces_of(Dropping(), range(4)) == ["once", " upon", " a", " time"]


def test_branches_of_a_tree_do_not_disturb_each_other(byte_tokenizer):
    pieces = Pieces(byte_tokenizer)
    fox, owl = (byte_tokenizer(c).input_ids for c in "🦊🦉")
    place = Place()
    for token in fox[:3]:
        _, place = pieces.extend(place, token)
    assert pieces.extend(place, fox[3])[0] == "🦊"
    assert pieces.extend(place, owl[3])[0] == "🦉"


def test_without_a_tokenizer_there_is_no_text():
    assert Pieces(None).extend(Place(), 5)[0] == ""
