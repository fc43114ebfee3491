"""Loaders on small files in the true formats, and their messages for malformed ones."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from decoders import InputError
from workbench.experiments.figures import SCORERS, score
from workbench.experiments.sets import FORMATS, find

QUESTION = {"question_id": 81, "category": "writing", "turns": ["Write {a} poem.", "Now rhyme it."]}
SQUAD = {
    "version": "v2.0",
    "data": [{"title": "Cork", "paragraphs": [{"context": "Built in 1871.", "qas": [
        {"id": "q1", "question": "When? ", "is_impossible": False,
            "answers": [{"text": "1871", "answer_start": 9}] * 2},
        {"id": "q2", "question": "Who?", "is_impossible": True, "answers": [],
            "plausible_answers": [{"text": "x", "answer_start": 0}]},
    ]}]}],
}  # fmt: skip
SPIDER = [
    {"db_id": "ships", "query": "SELECT count(*) FROM ship", "question": "How many?", "sql": {}}
]
TABLES = [{
    "db_id": "ships", "table_names_original": ["ship", "port"], "table_names": ["ship", "port"],
    "column_names_original": [[-1, "*"], [0, "id"], [0, "name"], [1, "town"]],
    "column_types": ["text"] * 4,
}]  # fmt: skip
HUMANEVAL = {
    "task_id": "HumanEval/0", "prompt": "def f(x):\n", "entry_point": "f",
    "canonical_solution": "    return x\n", "test": "...",
}  # fmt: skip
FILES = {
    "spec-bench": ("question.jsonl", json.dumps(QUESTION)),
    "mt-bench": ("question.jsonl", json.dumps({**QUESTION, "reference": ["x"]})),
    "cnn-dailymail": ("test.jsonl",
        json.dumps({"id": "a1", "article": "Long.", "highlights": "Short ."})),
    "squad": ("dev-v2.0.json", json.dumps(SQUAD)),
    "humaneval": ("HumanEval.jsonl", json.dumps(HUMANEVAL)),
    "chatgpt-prompts": ("prompts.csv",
        'human_prompt,chatgpt_response\n"Explain\nthis, ""please""",yes\nSecond,no\n'),
    "alpaca": ("alpaca.json",
        json.dumps([{"instruction": "Add.", "input": "1 2", "output": "3"},
            {"instruction": "Go.", "input": ""}])),
    "own": ("prompts.jsonl",
        '{"prompt": "a", "answer": ["b", "c"]}\n\n{"prompt": "d", "category": "x"}\n'),
}  # fmt: skip


@pytest.fixture
def data(tmp_path) -> Path:
    """A folder with every set."""
    for name, (file, text) in FILES.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text, encoding="utf-8")
    spider = tmp_path / "spider"
    (spider / "database" / "ships").mkdir(parents=True)
    (spider / "dev.json").write_text(json.dumps(SPIDER))
    (spider / "tables.json").write_text(json.dumps(TABLES))
    with closing(sqlite3.connect(spider / "database" / "ships" / "ships.sqlite")) as db, db:
        db.execute("CREATE TABLE ship (id, name)")
    return tmp_path


def test_every_format_is_read_and_its_template_takes_its_questions(data):
    for name, format in FORMATS.items():
        found = find(name, data)
        assert found.items
        assert all(found.text(i).strip() for i in range(len(found.items)))
        assert format.scorer in ("", *SCORERS)


def test_what_each_holds(data):
    bench = find("spec-bench", data)
    first = bench.items[0]
    assert (bench.text(0), first.category, first.id) == ("Write {a} poem.", "writing", "81")
    squad = find("squad", data)
    assert [i.answers["answers"] for i in squad.items] == [["1871"], []]
    assert squad.text(0).endswith("Text: Built in 1871.\nQuestion: When?\nAnswer:")
    asked = [i.question["prompt"] for i in find("chatgpt-prompts", data).items]
    assert asked == ['Explain\nthis, "please"', "Second"]
    assert [i.question["prompt"] for i in find("alpaca", data).items] == ["Add.\n1 2", "Go."]
    own = find("own", data)
    assert [i.answers for i in own.items] == [{"answers": ["b", "c"]}, {}]
    assert own.items[1].category == "x"
    assert find("mt-bench", data).text(0) == "User: Write {a} poem.\nAssistant:"


def test_spider_is_scored_on_its_database(data):
    found = find("spider", data)
    assert "ship(id, name)\nport(town)" in found.text(0)
    assert score(found, 0, " SELECT 0; and more") == {"score": 1.0}
    assert score(found, 0, "SELECT 1")["score"] == 0.0


def test_the_revision_is_of_the_content_and_not_of_the_folder(data, tmp_path):
    before = find("spider", data).revision
    moved = tmp_path / "moved"
    (data / "spider").rename(moved)
    assert find("spider", moved).revision == before
    (moved / "dev.json").write_text(json.dumps([{**SPIDER[0], "query": "SELECT 1"}]))
    assert find("spider", moved).revision != before


@pytest.mark.parametrize(("name", "text", "says"), [
    ("spec-bench", json.dumps(QUESTION) + "\n{oops", "question.jsonl, line 2: not JSON."),
    ("spec-bench", json.dumps({**QUESTION, "turns": []}),
        'question.jsonl, line 1: "turns" must begin with a text.'),
    ("spec-bench", json.dumps({"turns": ["a"]}), 'line 1: must have a text as "category".'),
    ("cnn-dailymail", '{"article": "a"}', 'test.jsonl, line 1: must have a text as "highlights".'),
    ("squad", '{\n"data": [}', "dev-v2.0.json, line 2: not JSON"),
    ("squad", '{"data": [{"paragraphs": [{"context": "a", "qas": [{"question": "b"}]}]}]}',
        "article 1, paragraph 1, question 1: must have a list"),
    ("spider", json.dumps([{**SPIDER[0], "db_id": "../secret"}]),
        "entry 1: \"db_id\" '../secret' is not the name of a database."),
    ("spider", json.dumps([{**SPIDER[0], "db_id": "planes"}]),
        "entry 1: tables.json has no database 'planes'."),
    ("chatgpt-prompts", "a,b\n1,2\n", 'prompts.csv, line 2: must have a text as "prompt".'),
    ("chatgpt-prompts", "human_prompt\nfine\n\"\"\n",
        'prompts.csv, line 3: must have a text as "prompt".'),
    ("alpaca", '[{"instruction": "a"}, {}]',
        'alpaca.json, entry 2: must have a text as "instruction".'),
    ("own", '{"prompt": "a"}\n{"prompt": "b", "answer": 3}', "prompts.jsonl, line 2: must have"),
    ("own", '{"prompt": "a", "category": "\\ud800"}',
        "prompts.jsonl, line 1: holds half a character"),
    ("own", "\n\n", "has no prompts"),
])  # fmt: skip
def test_what_is_malformed_is_named_with_its_file_and_place(data, name, text, says):
    """Half a character in a category once let the report fail, after hours of work."""
    file = FORMATS[name].files[0] if name == "spider" else FILES[name][0]
    (data / name / file).write_text(text)
    with pytest.raises(InputError) as caught:
        find(name, data)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_line_that_is_not_text_is_named(data):
    (data / "own" / "prompts.jsonl").write_bytes(b'{"prompt": "a"}\n{"prompt": "\xff"}\n')
    with pytest.raises(InputError, match=r"prompts.jsonl, line 2: not text in UTF-8"):
        find("own", data)


def test_a_set_that_must_be_downloaded_says_so(tmp_path):
    for data, says in (
        (None, "download dev-v2.0.json from its authors and name its folder with --data"),
        (tmp_path, "There is no dev-v2.0.json or dev-v1.1.json or dev.json for the set 'squad'"),
    ):
        with pytest.raises(InputError, match=says):
            find("squad", data)


def test_files_of_ones_own_are_read(tmp_path):
    (tmp_path / "mine.txt").write_text("one\n\ntwo\n")
    assert [i.question["prompt"] for i in find("mine.txt", tmp_path).items] == ["one", "two"]
    assert find(str(tmp_path / "mine.txt"), None).name == "mine.txt"


def test_our_own_kinds_give_way_to_spec_bench(tmp_path):
    """Ten prompts of each of six kinds, in turns: any limit takes equally many of each."""
    ours = find("kinds", None)
    kinds = [item.category for item in ours.items]
    assert kinds[:6] == ["stories", "refrains", "dialogue", "retelling", "sums", "code"]
    assert kinds == kinds[:6] * 10
    assert len({ours.text(i) for i in range(60)}) == 60
    assert find("kinds", tmp_path).revision == ours.revision
    line = '{"question_id": 1, "category": "rag", "turns": ["Who?"]}\n'
    (tmp_path / "question.jsonl").write_text(line)
    theirs = find("kinds", tmp_path)
    assert [(item.category, theirs.text(0)) for item in theirs.items] == [("rag", "Who?")]


def test_a_file_or_its_folder_may_be_given(data):
    whole = find("squad", data)
    assert find("squad", data / "squad") == find("squad", data / "squad" / "dev-v2.0.json") == whole
