"""A run is plain data and comes back whole, also from older versions; other files give a
sentence."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from decoders import InputError
from workbench.runs.record import LARGEST_FILE, Run

VERSION_1 = Path(__file__).parent / "version1"


@pytest.fixture(params=["comparison", "batch"])
def any_run(request, run, batch_run) -> Run:
    return run if request.param == "comparison" else batch_run


def test_a_run_comes_back_from_its_json_whole(any_run):
    text = json.dumps(any_run.to_json(), allow_nan=False)
    assert Run.from_json(text) == any_run
    assert Run.from_json(text.encode()) == any_run
    assert Run.from_json(any_run.dumps()) == any_run


@pytest.mark.parametrize("name", ["comparison", "comparison_t0"])
def test_a_comparison_of_version_1_opens(name):
    old = json.loads((VERSION_1 / f"{name}.json").read_text())
    run = Run.from_json((VERSION_1 / f"{name}.json").read_bytes())
    assert (run.kind, run.version) == ("comparison", 3)
    assert run.title == run.study["prompt"] == old["prompt"]
    for name in ("id", "created", "settings", "environment"):
        assert getattr(run, name) == old[name]
    for result, before in zip(run.results, old["results"], strict=True):
        for name in ("decoder", "repeat", "seed", "metrics", "error"):
            assert getattr(result, name) == before[name]
        kept = {
            n: v
            for n, v in asdict(result.alone).items()
            if n in ("text", "tokens", "rounds", "finished")
        }
        assert kept == {n: before[n] for n in kept}
        assert sum(result.alone.gained) >= len(result.alone.tokens)
        check = before["greedy_check"]
        assert (result.agreement is None) == (check is None)
        if check is not None:
            assert (result.agreement.reference, result.agreement.differing) == (
                "greedy",
                int(not check["identical"]),
            )
    assert Run.from_json(run.dumps()) == run


def test_a_batch_of_version_1_opens_and_always_has_the_same_id():
    """Batches had neither format nor id: their content gives them one."""
    old = json.loads((VERSION_1 / "batch.json").read_text())
    run = Run.from_json((VERSION_1 / "batch.json").read_bytes())
    assert run == Run.from_json(json.dumps(old))
    assert (run.kind, run.created, run.title) == (
        "batch",
        old["created"],
        f"{len(old['prompt_tokens'])} {old['prompt']}",
    )
    assert run.settings["schemes"] == old["settings"]["ways"]
    assert len(run.results) == len(old["cells"])
    for result, cell in zip(run.results, old["cells"], strict=True):
        assert (result.decoder, result.batch_size, result.scheme) == (
            cell["decoder"],
            cell["batch_size"],
            cell["way"],
        )
        own = ("decoder", "batch_size", "way", "repeat", "differing", "reference", "errors")
        assert {n: v for n, v in cell.items() if n not in own}.items() <= result.metrics.items()
        assert result.metrics["tokens_per_second"] == cell["new_tokens"] / cell["seconds"]
        assert (result.agreement.reference, result.agreement.differing) == (
            cell["reference"],
            cell["differing"],
        )
        assert [s.prompt_length for s in result.samples] == old["prompt_tokens"]
    kept = {r.decoder: [s.gained for s in r.samples] for r in reversed(run.results)}
    assert {
        name: next([s.gained for s in r.samples] for r in run.results if r.decoder == name)
        for name in kept
    } == old["acceptances"]
    assert Run.from_json(run.dumps()) == run


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
