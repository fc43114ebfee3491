"""Scorers against answers worked out by hand, and against packages that are installed."""

import sqlite3
import time
from contextlib import closing

import pytest

from workbench.experiments.figures import execute, execution_accuracy, rouge, score, squad
from workbench.experiments.sets import Item, ScoredSet


@pytest.mark.parametrize(("output", "gold", "exact", "f1"), [
    ("Paris", ["Paris"], 1, 1),
    ("the Paris", ["Paris"], 1, 1),
    ("Paris.", ["Paris"], 1, 1),
    ("U.S.A.", ["USA"], 1, 1),
    ("in Paris", ["Paris"], 0, 2 / 3),
    ("Paris in France", ["Paris", "Paris in France"], 1, 1),
    ("Paris Paris", ["Paris"], 0, 2 / 3),
    ("", [], 1, 1),
    ("Paris", [], 0, 0),
    ("twenty-one", ["twenty one"], 0, 0),
    ("1,871", ["1871"], 1, 1),
    ("a b c d", ["b c d e"], 0, 6 / 7),
])  # fmt: skip
def test_squad(output, gold, exact, f1):
    """The articles a, an and the do not count: "a b c d" has three words that do."""
    found = squad(output, {"answers": gold})
    assert found["exact match"] == found["score"] == exact
    assert found["F1"] == pytest.approx(f1)


@pytest.mark.parametrize(("output", "reference", "one", "two", "longest"), [
    ("the cat sat", "the cat sat", 1, 1, 1),
    ("the cat", "the cat sat", 4 / 5, 2 / 3, 4 / 5),
    ("sat cat the", "the cat sat", 1, 0, 1 / 3),
    ("", "the cat sat", 0, 0, 0),
])  # fmt: skip
def test_rouge(output, reference, one, two, longest):
    found = rouge(output, {"reference": reference})
    assert [found["rouge1"], found["rouge2"], found["rougeL"]] == pytest.approx([one, two, longest])
    assert found["score"] == found["rougeL"]


def test_only_the_answer_is_scored_and_only_if_there_is_something_to_compare_it_with():
    asked = {"prompt": "?"}
    items = (Item(asked, "line 1", {"answers": ["Paris"]}), Item(asked, "line 2"))
    scored = ScoredSet("s", items, "squad", stop=("\n",))
    assert score(scored, 0, " Paris\nQuestion: and London?")["score"] == 1
    assert score(scored, 1, "Paris") is None
    assert score(ScoredSet("s", items), 0, "Paris") is None


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("db") / "a #?%.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE ship (id INTEGER, name TEXT, tons REAL, year INTEGER)")
        ships = [(1, "Ann", 1.5, 1871), (2, "Bea", 2.0, None), (3, "Ann", 0.1, 1871)]
        db.executemany("INSERT INTO ship VALUES (?, ?, ?, ?)", ships)
        db.execute("CREATE TABLE bad (name TEXT)")
        db.execute("INSERT INTO bad VALUES (CAST(x'41ff42' AS TEXT))")
        db.execute("INSERT INTO bad VALUES (x'00ff')")
    return path


@pytest.mark.parametrize(("gold", "predicted", "right"), [
    ("SELECT name FROM ship", "SELECT name FROM ship", True),
    ("SELECT name FROM ship", "SELECT name FROM ship GROUP BY name", False),  # duplicates count
    # Ann, Bea, Ann both ways
    ("SELECT name FROM ship ORDER BY id", "SELECT name FROM ship ORDER BY id DESC", True),
    ("SELECT id FROM ship ORDER BY id", "SELECT id FROM ship ORDER BY id DESC", False),
    # gold does not order
    ("SELECT id FROM ship", "SELECT id FROM ship ORDER BY id DESC", True),
    ("SELECT year FROM ship WHERE id = 2", "SELECT NULL", True),
    ("SELECT tons FROM ship WHERE id = 2", "SELECT 2", True),  # 2 is 2.0
    ("SELECT 0.1 + 0.2", "SELECT 0.3", False),  # compared as the official script does: exactly
    ("SELECT id, name FROM ship", "SELECT name, id FROM ship", True),  # columns in any order
    ("SELECT id, name FROM ship", "SELECT id FROM ship", False),
    ("SELECT id FROM ship WHERE 0", "SELECT name FROM ship WHERE 0", True),  # both empty
    ("SELECT name FROM bad", "SELECT name FROM bad", True),  # cannot be decoded
    ("SELECT count(*) FROM ship", "SELECT 3", True),
    ("SELECT count(*) FROM ship", "SELECT '3'", False),
    # the script takes DISTINCT out of both queries
    ("SELECT name FROM ship", "SELECT DISTINCT name FROM ship", True),
    ("SELECT DISTINCT name FROM ship", "select name from ship", True),
    ("SELECT count(DISTINCT name) FROM ship", "SELECT count(name) FROM ship", True),
    # three rows and two
    ("SELECT DISTINCT name FROM ship", "SELECT name FROM ship GROUP BY name", False),
    ("SELECT 'distinct'", "SELECT ''", False),  # a text
    ("SELECT 'it''s distinct'", "SELECT 'it''s '", False),
    ('SELECT 1 AS "distinct"', "SELECT 1", True),
    ("SELECT 1 -- distinct\n", "SELECT /* distinct */ 1", True),
    ("SELECT id FROM ship WHERE id >= 2", "SELECT id FROM ship WHERE id > = 2", True),
    ("SELECT 2020", "SELECT YEAR( CURDATE() )", True),
])  # fmt: skip
def test_execution_accuracy(database, gold, predicted, right):
    """DISTINCT alone made a prediction wrong that Spider's official script counts as right."""
    assert execution_accuracy(database, gold, predicted) == (right, None)


@pytest.mark.parametrize(("query", "says"), [
    ("DELETE FROM ship", "not authorized"),
    ("CREATE TABLE x (a)", "not authorized"),
    ("PRAGMA query_only = OFF", "not authorized"),
    ("ATTACH '/tmp/other.sqlite' AS o", "not authorized"),
    ("VACUUM INTO '/tmp/copy.sqlite'", "authorization denied"),
    ("SELECT load_extension('/tmp/x.so')", "not authorized"),
    ("SELECT 1; DELETE FROM ship", "one statement at a time"),
    ("", None),
    ("SELECT * FROM nowhere", "no such table"),
    ("SELECT hex(zeroblob(1000000000))", "too big"),
    ("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
        "SELECT x, 'aaaaaaaaaaaaaaaaaaaa' FROM c", "larger than 20000 rows"),
    ("SELECT hex(randomblob(600000)) || hex(randomblob(600000))", "too big"),
    ("SELECT " + "(" * 500 + "1" + ")" * 500, "SQLite: "),
])  # fmt: skip
def test_a_query_can_neither_write_nor_reach_out_nor_grow(database, query, says):
    before = database.read_bytes()
    rows, fault = execute(database, query, deadline=5)
    assert rows == []
    assert (says is None) == (fault is None)
    assert says is None or says in fault
    assert database.read_bytes() == before
    assert sorted(f.name for f in database.parent.iterdir()) == [database.name]


def test_a_query_that_runs_forever_is_stopped(database):
    began = time.monotonic()
    forever = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x FROM c) SELECT count(*) FROM c"
    assert execute(database, forever, deadline=1) == ([], "stopped after 1 s")
    assert time.monotonic() - began < 30


def test_a_gold_query_that_fails_scores_nobody(database):
    right, why = execution_accuracy(database, "SELECT * FROM nowhere", "SELECT 1")
    assert right is None
    assert why.startswith("the gold query failed: SQLite: no such table")
