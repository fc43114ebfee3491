"""A run is plain data and comes back whole; other files give a sentence."""

import json

import pytest

from decoders import InputError
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


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda d: d.update(version=4), "version"),
        (lambda d: d.update(format="something else"), "format"),
        (lambda d: d.update(id='"><script>'), "id"),
        (lambda d: d.update(kind="../up"), "kind"),
        (lambda d: d.update(surprise=1), "surprise"),
        (lambda d: d.pop("title"), "title"),
        (lambda d: d.update(results=None), "results"),
        (lambda d: d["results"][0].update(samples=[]), r"results\[0\].samples"),
        (lambda d: d["results"][0].update(scheme="sideways"), r"results\[0\].scheme"),
        (lambda d: d["results"][0].update(decoder="gredy"), r"results\[0\].decoder"),
        (lambda d: d["results"][0]["samples"][0]["tokens"][2].update(p="high"),
            r"results\[0\].samples\[0\].tokens\[2\].p"),
        (lambda d: d["results"][0]["samples"][0]["tokens"][2].update(p=float("nan")),
            r"results\[0\].samples\[0\].tokens\[2\].p"),
        (lambda d: d["results"][0]["samples"][0]["tokens"][2].update(fate="lost"),
            r"results\[0\].samples\[0\].tokens\[2\].fate"),
        (lambda d: d["results"][1]["samples"][0]["rounds"][0].update(trials=None),
            r"results\[1\].samples\[0\].rounds\[0\].trials"),
        (lambda d: d["results"][0]["samples"][0]["tokens"][0].update(onclick="x"),
            r"results\[0\].samples\[0\].tokens\[0\].onclick"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_somewhere_names_the_place(run, change, place):
    data = run.to_json()
    change(data)
    with pytest.raises(InputError, match=f"not a run of the workbench: {place}: "):
        Run.from_json(json.dumps(data))
