"""An experiment runs, stops and resumes; a failure is a row."""

import threading
from itertools import count

import pytest

from decoders import InputError, catalog
from tests.workbench.experiments.conftest import PLAN, answers
from workbench.experiments import driver
from workbench.experiments.bench import Bench
from workbench.experiments.journal import Journal
from workbench.experiments.plan import ExperimentRequest
from workbench.models.presets import PairChoice


def finished(experiment, journal, crew, **options):
    *_, last = driver.run(experiment, journal, crew, **options)
    return last


def test_every_cell_has_a_row_for_every_item(prepared, journal, crew):
    experiment = prepared()
    last = finished(experiment, journal, crew)
    kept = journal.cells(experiment.id)
    assert (last.done, last.total, last.failed, last.running) == (5, 5, 0, False)
    assert [(k.part, k.label, len(k.rows)) for k in kept] == [
        ("timed", "greedy", 3), ("timed", "speculative", 3), ("timed", "mtad threshold=0.1", 3),
        ("timed", "mtad threshold=0.9", 3), ("quality", "multinomial", 2),
    ]  # fmt: skip
    for row in (row for k in kept for row in k.rows.values()):
        (output,) = row.outputs
        assert len(output.ids) == row.metrics["new_tokens"] > 0
        assert row.metrics["perplexity"] > 1
        assert sum(output.gained) == len(output.ids)
        assert row.result.energy.source.startswith("not measured")


def test_the_tokens_are_those_of_generate(prepared, journal, crew, pair):
    import decoders

    experiment = prepared()
    finished(experiment, journal, crew)
    kept = {k.label: k for k in journal.cells(experiment.id)}
    prompts = experiment.sets["stories"]
    for item, row in kept["speculative"].rows.items():
        plain = decoders.generate(
            pair, prompts.text(item), catalog["speculative"](), max_new_tokens=8, seed=item
        )
        assert (row.outputs[0].ids, row.outputs[0].text) == (plain.tokens, plain.text)


def test_stopped_and_resumed_it_has_the_same_rows_and_does_nothing_twice(
    prepared, journal, crew, tmp_path, monkeypatch
):
    experiment = prepared()
    whole = Journal(tmp_path / "whole.sqlite")
    finished(experiment, whole, crew)
    ran = []
    usual = Bench.run
    monkeypatch.setattr(
        Bench, "run", lambda bench, unit: ran.append((unit.ids, unit.item)) or usual(bench, unit)
    )
    for most in (1, 2, 9):
        stop, seen = threading.Event(), count(1)
        for now in driver.run(experiment, journal, crew, stop):
            if now.done >= most or next(seen) > 500:
                stop.set()
    assert answers(journal, experiment.id) == answers(whole, experiment.id)
    assert len(ran) == len(set(ran)) == 5
    finished(experiment, journal, crew)
    assert len(ran) == 5


def test_batches_and_seeds_give_what_single_prompts_give(prepared, journal, crew):
    text = (
        '[[part]]\nlimit = 3\nmax_new_tokens = 6\nbatch_sizes = [1, 2]\nschemes = ["unpadded", '
        '"dynamic"]\ndecoders = ["speculative"]\n'
    )
    experiment = prepared(text)
    assert finished(experiment, journal, crew).failed == 0
    tokens = {}
    for kept in journal.cells(experiment.id):
        if kept.spec["decoder"] == "speculative":
            own = {o.prompt: o.ids for row in kept.rows.values() for o in row.outputs}
            tokens[kept.label] = own
    assert len(tokens) == 3
    assert list(tokens.values()) == [next(iter(tokens.values()))] * 3
    assert set(next(iter(tokens.values()))) == {0, 1, 2}


def test_a_failing_sample_is_a_row_with_its_error_and_the_rest_goes_on(
    prepared, journal, crew, monkeypatch
):
    def decode(self, request):
        raise RuntimeError("broken on purpose")
        yield

    monkeypatch.setattr(catalog["mtad"], "decode", decode)
    experiment = prepared()
    last = finished(experiment, journal, crew)
    kept = journal.cells(experiment.id)
    assert (last.done, last.failed) == (5, 6)
    assert {e for k in kept for row in k.rows.values() for e in row.errors} == {
        "RuntimeError: broken on purpose"
    }
    assert all(
        not row.errors for k in kept if k.spec["decoder"] != "mtad" for row in k.rows.values()
    )


def test_a_prompt_that_does_not_fit_is_a_row_with_its_error(prepared, journal, crew, tmp_path):
    (tmp_path / "mine.jsonl").write_text('{"prompt": "ab"}\n{"prompt": "%s"}\n' % ("ab " * 400))
    text = (
        '[[part]]\nprompts = ["mine.jsonl"]\nmax_new_tokens = 4\ntimed = false\ndecoders = '
        '["multinomial"]\n'
    )
    experiment = prepared(text, data=str(tmp_path))
    assert finished(experiment, journal, crew).failed == 1
    (kept,) = journal.cells(experiment.id)
    assert "exceed the 512 positions" in kept.rows[1].result.error
    assert not kept.rows[0].errors


def test_two_drivers_of_one_experiment_share_the_work(prepared, journal, crew, tmp_path):
    experiment = prepared()
    whole = Journal(tmp_path / "whole.sqlite")
    finished(experiment, whole, crew)
    threads = [
        threading.Thread(target=finished, args=(experiment, journal, crew)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers(journal, experiment.id) == answers(whole, experiment.id)


def test_a_journal_that_cannot_be_written_ends_it_with_its_sentence(
    prepared, journal, crew, monkeypatch
):
    experiment = prepared()
    happening = driver.run(experiment, journal, crew)
    while next(happening).done < 1:
        pass

    def fail(*_):
        raise InputError("Experiments cannot be kept: the disk is full.")

    monkeypatch.setattr(journal, "commit", fail)
    with pytest.raises(InputError, match="the disk is full"):
        list(happening)
    monkeypatch.undo()
    done = journal.progress(experiment.id).done
    assert 1 <= done < 5
    assert not journal.progress(experiment.id).running


def test_it_waits_its_turn_for_the_device(prepared, journal, crew, device):
    experiment = prepared()
    with device.turn:  # a comparison has it
        happening = driver.run(experiment, journal, crew)
        assert [next(happening).done for _ in range(3)] == [0, 0, 0]
    *_, last = happening
    assert last.done == 5


def test_a_plan_may_be_asked_again(prepared, journal, crew):
    experiment = prepared(limit=1)
    finished(experiment, journal, crew)
    again = journal.experiment(experiment.id).request
    assert again == experiment.request
    assert driver.prepare(again, crew).id == experiment.id


def test_quantised_weights_make_another_experiment_which_is_resumed_with_them(
    prepared, journal, crew
):
    """A plan on int8 weights had the ids of the same plan on plain ones, so that rows of either
    counted as done for the other, and Resume loaded plain weights."""
    plain, int8 = (prepared(choice=PairChoice(quantization=kind)) for kind in (None, "int8"))
    assert prepared().id == plain.id
    ids = [{id for block in each.blocks for id in block.ids} for each in (plain, int8)]
    assert not ids[0] & ids[1]
    assert int8.id != plain.id
    finished(int8, journal, crew)
    again = journal.experiment(int8.id).request
    assert again.choice.quantization == "int8"
    assert driver.prepare(again, crew).id == int8.id


def test_a_request_that_was_kept_without_a_quantization_is_read():
    old = {
        **ExperimentRequest(PLAN, "small.toml").to_json(),
        "choice": ["a", "b", "cpu", "float32"],
    }
    assert ExperimentRequest.from_json(old).choice == PairChoice("a", "b", "cpu", "float32")


def test_a_set_that_is_not_there_is_said_before_anything_is_loaded(crew):
    with pytest.raises(
        InputError, match="There is no set of prompts 'storys': did you mean 'stories'"
    ):
        ExperimentRequest(PLAN + 'prompts = ["storys"]', "a.toml").read()


def test_time_left_is_known_while_items_are_left(prepared, journal, crew, monkeypatch):
    monkeypatch.setattr(driver, "BEAT_SECONDS", 0.01)
    seen = list(driver.run(prepared(), journal, crew))
    known = [now.eta for now in seen if now.eta is not None and now.done < now.total]
    assert known
    assert all(0 < seconds < 600 for seconds in known)


def test_an_experiment_runs_from_the_moment_that_it_can_be_seen(
    prepared, journal, crew, monkeypatch
):
    """The page said "Stopped; Resume does the rest" of an experiment that had just started."""
    seen, begin = [], journal.begin

    def look(id, *rest):
        begin(id, *rest)
        seen.append(journal.progress(id).running)

    monkeypatch.setattr(journal, "begin", look)
    finished(prepared(limit=1), journal, crew)
    assert seen == [True]
