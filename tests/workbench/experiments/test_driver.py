"""An experiment runs, stops and resumes; a failure is a row."""

import threading
import time
from itertools import count

import pytest

from decoders import InputError, catalog
from tests.workbench.experiments.conftest import PLAN, answers
from workbench.experiments import driver
from workbench.experiments import plan as plans
from workbench.experiments.driver import PUBLIC_PROMPTS, Background
from workbench.experiments.journal import Journal
from workbench.experiments.plan import ExperimentRequest
from workbench.experiments.workers import Bench
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice
from workbench.studies.study import Limits


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


@pytest.fixture
def make(device, journal):
    return lambda **limits: Background(device, journal, Limits(**limits))


REQUEST = ExperimentRequest(PLAN, "small.toml")


def test_it_runs_to_its_end_and_says_how_far_it_is(make, journal):
    background = make()
    background.start(REQUEST)
    with pytest.raises(InputError, match="is running here already"):
        background.start(REQUEST)
    assert "loading the models" in background.says(None) or background.work.id
    background.join()
    now = journal.progress(background.work.id)
    assert (now.done, now.total, background.running, background.work.fault) == (5, 5, False, "")
    assert background.says(now) == "Small: 5 of 5 items done"


def test_it_waits_while_something_else_has_the_device_and_stops_when_asked(make, journal):
    background = make()
    with background.device.turn:
        background.start(REQUEST)
        deadline = time.monotonic() + 60
        while not background.waiting and time.monotonic() < deadline:
            time.sleep(0.01)
        assert background.waiting
        background.stop()
    background.join()
    if background.work.id is not None:
        before = answers(journal, background.work.id)
        assert len(before) < 14
    background.start(REQUEST)
    background.join()
    assert journal.progress(background.work.id).done == 5


def test_what_breaks_down_is_a_sentence(journal):
    def fail(*_):
        raise InputError("The models are missing.")

    background = Background(Device(PairKeeper(loader=fail)), journal, Limits())
    background.start(REQUEST)
    background.join()
    assert background.work.fault == "The models are missing."


def test_a_shared_machine_runs_the_projects_plans_small_and_nothing_else(make):
    background = make(public=True)
    with pytest.raises(InputError, match="only the plans that come with the project"):
        background.start(REQUEST)
    stories = plans.find("stories").source
    request = background.allowed(
        ExperimentRequest(stories, "stories.toml", limit=5000, data="/etc")
    )
    assert (request.limit, request.data, request.paths, request.choice.target) == (
        PUBLIC_PROMPTS,
        None,
        False,
        None,
    )


def test_on_a_shared_machine_only_its_starter_stops_an_experiment(make):
    background = make(public=True)
    with background.device.turn:
        background.start(ExperimentRequest(plans.find("stories").source, "stories.toml"), "me")
        with pytest.raises(InputError, match="Somebody else started"):
            background.stop("you")
        background.stop("me")
    background.join()
    assert not background.running


def test_a_plan_that_names_files_cannot_read_them_here(make):
    background = make()
    plan = PLAN.replace('name = "timed"', 'name = "timed"\nprompts = ["/etc/passwd.txt"]')
    with pytest.raises(InputError, match="There is no set of prompts"):
        background.start(ExperimentRequest(plan, "small.toml", paths=False))


@pytest.mark.parametrize("public", [False, True])
def test_a_plan_of_an_earlier_version_that_asks_servers_is_one_sentence(make, public):
    plan = '[[engine]]\nstart = "fast"\nlimit = 1\n'
    with pytest.raises(InputError, match="shared machine" if public else "no longer ask servers"):
        make(public=public).start(ExperimentRequest(plan, "load.toml"))
