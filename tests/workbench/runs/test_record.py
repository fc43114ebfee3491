"""A run is plain data and comes back whole; other files give a sentence."""

import json
import re

import pytest

from decoders import InputError
from tests.workbench.kinds.test_registry import changed
from workbench.runs.record import LARGEST_FILE, Run


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "5", '{"format": "decoding-workbench run", "version": 1}',
        '{"cells": [], "acceptances": {}}', b"\xff\xfe\x00", "[" * 5000,
        '{"id": "a' + "\\ud800" + '"}', '{"id": ' + "9" * 5000 + "}",
    ],
)  # fmt: skip
def test_a_file_that_is_broken_or_foreign_gives_one_clear_sentence(text):
    with pytest.raises(InputError, match="This is not a run of the workbench: ") as refusal:
        Run.from_json(text)
    assert "\n" not in str(refusal.value)


def test_a_file_larger_than_any_run_is_refused_unread():
    """50 MB were kept without a word."""
    with pytest.raises(InputError, match="larger than"):
        Run.from_json("x" * (LARGEST_FILE + 1))


TOKEN = ("results", 0, "samples", 0, "tokens", 2)


@pytest.mark.parametrize(("path", "value"), [
    (("version",), 4),
    (("format",), "something else"),
    (("id",), '"><script>'),
    (("kind",), "../up"),
    (("surprise",), 1),
    (("title",), "remove"),
    (("results",), None),
    (("results", 0, "samples"), []),
    (("results", 0, "scheme"), "sideways"),
    (("results", 0, "decoder"), "gredy"),
    (("results", 1, "samples", 0, "rounds", 0, "trials"), None),
    ((*TOKEN, "p"), "high"),
    ((*TOKEN, "p"), float("nan")),
    ((*TOKEN, "fate"), "lost"),
    ((*TOKEN, "onclick"), "x"),
])  # fmt: skip
def test_a_file_that_is_wrong_somewhere_names_the_place(run, path, value):
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]
    with pytest.raises(InputError, match=re.escape(f"not a run of the workbench: {place}: ")):
        Run.from_json(json.dumps(changed(run.to_json(), path, value)))
