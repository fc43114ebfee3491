"""Whether a pair can run a study is found out without running anything."""

import re
from dataclasses import replace

import pytest

import decoders
from decoders import InputError
from decoders.engine.passes import PackedPasses
from tests.models import POSITIONS
from tests.workbench.measuring.conftest import FEW, batch, comparison
from workbench.measuring import meter, session
from workbench.measuring.work import admit
from workbench.studies.prompts import Prompt, PromptSet


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch):
    """One click on Run validated four times, opened an energy meter each time and started a
    comparison only to close it."""
    owned = [(PackedPasses, "run"), (decoders, "stream"), (decoders, "generate")]
    for owner, name in [*owned, (session, "open_meter"), (meter, "open_meter")]:
        monkeypatch.setattr(owner, name, lambda *a, **o: pytest.fail("something was started"))


@pytest.mark.parametrize(("prompt", "shared", "message"), [
    ("abc", {"chat_template": True}, "no chat template"),
    ("abc", {"top_p": 0.0}, "top_p must be"),
    ("abc", {"max_new_tokens": 510}, "exceed the 512 positions"),
])  # fmt: skip
def test_what_cannot_run_is_refused(pair, prompt, shared, message):
    with pytest.raises(InputError, match=message) as refusal:
        admit(pair, comparison("greedy", prompt=prompt, **shared))
    assert "\n" not in str(refusal.value)


def test_a_prompt_that_is_too_long_is_named(pair):
    long = PromptSet("few", (*FEW.prompts, Prompt("a" * POSITIONS, "few, line 9")))
    says = "few, line 9: its 512 tokens and 10 new ones exceed the 512 positions"
    with pytest.raises(InputError, match=says):
        admit(pair, batch("lookup", prompts=long))


def test_a_budget_too_small_names_the_prompt_and_the_least_that_does(pair):
    tight = batch("lookup", "beam_search", schemes=("dynamic",), cache_mb=0.01)
    says = "few, line 3: with beam_search its 19 tokens and 10 new ones can need"
    with pytest.raises(InputError, match=says) as error:
        admit(pair, tight)
    least = float(re.search(r"give at least ([\d.]+),", str(error.value)).group(1))
    admit(pair, replace(tight, cache_mb=least))
    with pytest.raises(InputError, match="give at least"):
        admit(pair, replace(tight, cache_mb=round(least - 0.01, 2)))
