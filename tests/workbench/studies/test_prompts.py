"""Prompt sets are read whole, and every refusal names the place."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders import InputError
from decoders.inputs import ROLES
from workbench.studies import prompts
from workbench.studies.prompts import (
    Chat,
    PromptSet,
    built_in,
    checked,
    find,
    parse,
    plain,
    read,
    typed,
    written,
)


def texts(path) -> list[str]:
    return [p.text for p in read(path).prompts]


def test_a_text_file_has_one_prompt_a_line_and_blank_lines_are_none(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes("\ufeffOnce upon\r\n\n  \n  twice, très vite\n".encode())
    found = read(file).prompts
    assert [p.text for p in found] == ["Once upon", "  twice, très vite"]
    assert [p.place for p in found] == ["a.txt, line 1", "a.txt, line 4"]


def test_jsonl_prompts_may_hold_newlines(tmp_path):
    file = tmp_path / "a.jsonl"
    first = json.dumps({"prompt": "two\nlines", "id": 7})
    file.write_text(f'{first}\n\n{{"prompt": "x"}}')
    assert texts(file) == ["two\nlines", "x"]


@pytest.mark.parametrize(("name", "data", "says"), [
    ("a.txt", b"\n \n", "a.txt has no prompts"),
    ("a.txt", b"fine\n\xff\xfe bad", "a.txt, line 2: not text in UTF-8"),
    ("a.txt", b"fine\nz\0ro", "a.txt, line 2: zero bytes"),
    ("a.txt", b"fine\n" + b"x" * (prompts.LONGEST_PROMPT + 1),
        "a.txt, line 2: 20,001 characters are too long"),
    ("a.jsonl", b'{"prompt": "x"}\n{"prompt": 3}', "a.jsonl, line 2: must be a JSON object"),
    ("a.jsonl", b'{"prompt": "\\ud800"}', "a.jsonl, line 1: must be a JSON object"),
    ("a.jsonl", b'{"prompt": " "}', "a.jsonl, line 1: must be a JSON object"),
])  # fmt: skip
def test_bad_files_are_refused_by_the_line(tmp_path, name, data, says):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=says):
        read(tmp_path / name)


def test_files_too_large_too_many_or_missing_are_refused(tmp_path):
    file = tmp_path / "a.txt"
    with pytest.raises(InputError, match=r"a\.txt cannot be read: No such file"):
        read(file)
    file.write_text("a\n" * 10_001)
    with pytest.raises(InputError, match=r"10,001 prompts; give at most 10,000"):
        read(file)
    file.write_bytes(b"a" * (prompts.LARGEST_FILE + 1))
    with pytest.raises(InputError, match=r"larger than"):
        read(file)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(InputError, match=r"cannot be read: Is a directory; give a text file or"):
        read(tmp_path)


def test_the_built_in_sets_are_there_and_each_refrain_repeats_itself():
    assert len(built_in("stories").prompts) >= 24
    refrains = built_in("refrains").prompts
    assert len({p.text for p in refrains}) == 24
    for prompt in refrains:
        words = prompt.text.split()
        runs = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
        assert len(set(runs)) < len(runs), prompt
    with pytest.raises(InputError, match="stories or refrains or chats"):
        built_in("novels")


def test_find_takes_a_name_or_a_path(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    assert find("refrains") == built_in("refrains")
    assert find(str(tmp_path / "a.txt")).name == "a.txt"
    assert len(find("refrains").first(3).prompts) == 3


def test_a_file_whose_name_is_no_text_can_be_used_and_kept(tmp_path):
    """The name became part of the run, which then could not be written as JSON."""
    file = tmp_path / b"\xff.txt".decode(errors="surrogateescape")
    file.write_text("x")
    found = read(file)
    assert (found.name, len(found.prompts)) == ("?.txt", 1)
    found.name.encode()


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


@pytest.mark.parametrize(("prompt", "says"), [
    ([], "The prompt is empty; give at least one message."),
    ([{"role": "user", "content": " "}], "The prompt is empty"),
    ([{"role": "user", "content": "x" * 1_000_001}], "shorten it to at most 1,000,000."),
    (HELLO * 1001, "The prompt has 1,001 messages; give at most 1,000."),
    ([{"role": "user"}], "Message 1 has no content"),
    ([{"role": "user", "content": "\ud83d"}], "Message 1 holds half a character"),
])  # fmt: skip
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
