"""Messages as prompts of studies, and as text in boxes and links."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders import InputError
from decoders.prompts import ROLES
from workbench.studies.prompts import Chat, PromptSet, checked, parse, plain, title, typed, written

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
CHATS = st.lists(st.tuples(st.sampled_from(ROLES), TEXTS), min_size=1, max_size=4).map(
    lambda messages: Chat(tuple(messages))
)
HELLO = [{"role": "user", "content": "Hello"}]


@given(CHATS | TEXTS)
def test_a_prompt_goes_through_boxes_and_json(prompt):
    """What was typed is what is asked; any text but messages stays the text that it is."""
    found = typed(written(plain(prompt)))
    assert (Chat.of(found) if isinstance(found, list) else found) == prompt
    assert json.loads(json.dumps(plain(prompt))) == plain(prompt)


@pytest.mark.parametrize("text", ["[5, 9]", "[]", "[{}]", '[{"a": 1}]', "[x", '{"role": "user"}'])
def test_other_json_is_a_text(text):
    assert typed(text) == text


def test_titles():
    assert title("Once") == "Once"
    assert title(Chat.of(HELLO)) == "Hello"
    talk = Chat.of([{"role": "system", "content": "Rhyme."}, *HELLO])
    assert title(talk) == "system: Rhyme. · user: Hello"
    assert title(talk.answered("Hi").answered("!")) == f"{title(talk)} · assistant: Hi!"


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ([], "The prompt is empty; give at least one message."),
        ([{"role": "user", "content": " "}], "The prompt is empty"),
        ([{"role": "user", "content": "x" * 1_000_001}], "shorten it to at most 1,000,000."),
        (HELLO * 1001, "The prompt has 1,001 messages; give at most 1,000."),
        ([{"role": "user"}], "Message 1 has no content"),
        ([{"role": "user", "content": "\ud83d"}], "Message 1 holds half a character"),
    ],
)
def test_what_is_no_chat_is_refused(prompt, says):
    with pytest.raises(InputError, match=says):
        checked(prompt)


def test_a_file_of_prompts_may_hold_messages():
    talk = [{"role": "system", "content": "Rhyme."}, *HELLO]
    lines = "\n".join(json.dumps({"prompt": prompt}) for prompt in ("Once", talk))
    found = parse("a.jsonl", lines.encode())
    assert [p.text for p in found.prompts] == ["Once", Chat.of(talk)]
    assert [p.text for p in PromptSet.from_json(found.to_json()).prompts] == ["Once", Chat.of(talk)]
    with pytest.raises(InputError, match=r"a\.jsonl, line 1: Message 1 has no content"):
        parse("a.jsonl", b'{"prompt": [{"role": "user"}]}')
