"""Experiments in the background of the page: one at a time, stopped and resumed.

Some are refused on a shared machine."""

import time

import pytest

from decoders import InputError
from tests.workbench.experiments.conftest import PLAN, answers
from workbench.experiments import plan as plans
from workbench.experiments.driver import PUBLIC_PROMPTS, Background
from workbench.experiments.plan import ExperimentRequest
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper
from workbench.studies.limits import Limits


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
