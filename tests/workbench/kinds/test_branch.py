"""A branch is its prefix decoded from scratch, for every decoder and at every token."""

from dataclasses import replace

import gradio as gr
import pytest
import torch

import decoders
from decoders import InputError
from decoders.distribution import Warping, warp
from tests.models import build_pair, build_tokenizer, plain_logits
from tests.pairwise import part
from tests.workbench.conftest import finished
from tests.workbench.measuring.conftest import comparison
from tests.workbench.page.visitor import Visitor
from workbench.kinds.branch import alternatives, branch
from workbench.kinds.comparison import Comparison
from workbench.measuring.work import admit
from workbench.page.host import Host
from workbench.runs.record import Run

NAMES = [
    "greedy", "multinomial", "beam_search", "beam_sampling", "speculative", "mtad", "dsbd",
    "specinfer",
]  # fmt: skip
SHARED = {"max_new_tokens": 8, "temperature": 0.8, "top_k": 20, "seed": 7}


@pytest.fixture(scope="module")
def exact():
    """A pair in float64 whose tokenizer has words of several characters, so that a text tokenised
    again would be other tokens."""
    return build_pair(tokenizer=build_tokenizer(("ab", "abc", "ca")))


@pytest.fixture(scope="module")
def run(exact, unmetered) -> Run:
    return finished(exact, comparison(*NAMES, prompt="abcab", **SHARED), unmetered)


@pytest.mark.parametrize("name", part(NAMES))
def test_a_branch_is_a_decoding_of_its_prefix_from_scratch(exact, run, unmetered, name):
    """At every token the branch's one job decodes the ids of its prefix with the same settings; at
    some the run is compared, too."""
    (result,) = [r for r in run.results if r.decoder == name]
    prompt = list(exact.tokenizer("abcab").input_ids)
    own = decoders.generate(exact, "abcab", name, **SHARED).tokens
    assert [t.id for t in result.alone.tokens] == own
    for at in range(len(own) + 1):
        offered = [each.id for each in alternatives(exact, run, name, at)[0]]
        other = [id for id in offered if id not in own[at : at + 1]][at % 3]
        study = branch(exact, run, name, at, other)
        ids = [*prompt, *own[:at], other]
        assert admit(exact, study) == [ids]
        assert [(job.method, job.seed) for job in study.jobs()] == [(decoders.catalog[name](), 7)]
        if at in (0, 3, len(own)):
            found = finished(exact, study, unmetered).results[0].alone
            scratch = decoders.generate(exact, ids, name, **SHARED)
            assert found.prompt_ids == ids
            assert [t.id for t in found.tokens] == scratch.tokens
            assert found.text == scratch.text


def test_all_chosen_decoders_continue_and_a_branch_can_be_branched(exact, run, unmetered):
    study = branch(exact, run, "mtad", 3, 5, ["greedy", "dsbd"])
    first = finished(exact, study, unmetered)
    assert first.decoders == ["greedy", "dsbd"]
    second = branch(exact, first, "dsbd", 2, 6)
    kept = [t.id for t in first.results[1].alone.tokens[:2]]
    assert second.start.ids == (*study.start.ids, *kept, 6)
    trail = [(step.run, step.decoder, step.at) for step in second.start.trail]
    assert trail == [(run.id, "mtad", 3), (first.id, "dsbd", 2)]
    assert Comparison.from_json(second.to_json()) == second
    assert Run.from_json(first.dumps()) == first
    assert second.prompt.startswith(study.prompt)


def test_a_branch_is_never_tokenised_again(exact, run, unmetered):
    """`ab` and `c` are two tokens, and their text would be three."""
    one, two = exact.tokenizer.convert_tokens_to_ids(["ab", "c"])
    study = branch(exact, run, "greedy", 0, one)
    first = finished(exact, study, unmetered)
    again = branch(exact, first, "greedy", 0, two)
    assert again.prompt.endswith("abc")
    assert again.start.ids[-2:] == (one, two)
    assert list(exact.tokenizer(again.prompt).input_ids) != list(again.start.ids)
    (ids,) = admit(exact, again)
    assert tuple(ids) == again.start.ids


def test_probabilities_are_those_of_a_plain_pass(exact, run):
    prompt, own = exact.tokenizer("abcab").input_ids, run.results[4].alone.tokens
    logits = plain_logits(exact.target, [*prompt, *(t.id for t in own[:2])])
    raw, warped = logits.softmax(-1), warp(logits, Warping(0.8, 20, 1.0))
    least = int(raw.argmin())
    found, _ = alternatives(exact, run, "speculative", 2, least)
    assert [each.id for each in found[:20]] == torch.topk(raw, 20).indices.tolist()
    assert found[-1].id == least
    assert found[-1].warped == 0
    for each in found:
        assert each.raw == pytest.approx(raw[each.id].item(), abs=1e-9)
        assert each.warped == pytest.approx(warped[each.id].item(), abs=1e-9)


@pytest.mark.parametrize("name", ["greedy", "beam_search", "mtad"])
def test_a_decoder_that_does_not_sample_has_no_chances_of_plain_sampling(exact, run, name):
    """Greedy and beam search listed what plain sampling would draw; greedy always takes the
    likeliest, beam search draws nothing."""
    found = [each.warped for each in alternatives(exact, run, name, 2)[0]]
    assert found == ([1.0] + [0.0] * 19 if name == "greedy" else [None] * 20)


@pytest.mark.parametrize(("decoder", "at", "token", "says"), [
    ("greedy", 99, 5, "This text has 8 tokens; choose a place from 0 to 8, not 99."),
    ("typical", 1, 5, "This run has no text of 'typical'"),
    ("greedy", True, 5, "A place is a decoder's name"),
    ("greedy", 1, 67, "There is no token 67; the vocabulary has ids 0 to 66."),
    ("greedy", 1, "#999999", "There is no token 999999"),
    ("greedy", 1, "ab c", "4 tokens here (a | b |   | c)"),
    ("greedy", 1, "", "is no token"),
])  # fmt: skip
def test_what_is_not_there_is_one_sentence(exact, run, decoder, at, token, says):
    for ask in (branch, alternatives):
        with pytest.raises(InputError) as told:
            ask(exact, run, decoder, at, token)
        assert says in str(told.value)
        assert "\n" not in str(told.value)


def test_a_run_of_another_pair_says_which_one_to_load(exact, run, pair):
    with pytest.raises(InputError, match=r"This run was made with .*; load that pair to continue"):
        branch(pair, run, "greedy", 1, 5)
    where = {**run.environment, "target": {"name": "big/one"}, "draft": None}
    other = replace(run, environment=where)
    with pytest.raises(InputError, match="This run was made with big/one; load that pair"):
        alternatives(exact, other, "greedy", 1)


def test_a_run_without_its_prompts_tokens_is_not_branched(exact, run):
    """Runs of versions 1 and 2 only have the number of prompt tokens."""
    older = [replace(r, samples=[replace(r.alone, prompt_ids=[])]) for r in run.results]
    with pytest.raises(InputError, match="did not keep the tokens of its prompt; run it again"):
        branch(exact, replace(run, results=older), "greedy", 2, 5)


ASKED = "prompt=ab<b>&decoders=greedy,mtad&max_new_tokens=6&temperature=0.7&top_k=5&timings=1"


@pytest.fixture(scope="module")
def visitor(house) -> Visitor:
    visitor = Visitor(house[1], ASKED)
    visitor.press("run")
    return visitor


@pytest.fixture(scope="module")
def parent(house, visitor) -> Run:
    """The run of the visitor."""
    return newest(house[0])


def ask(visitor: Visitor, event: str, data) -> None:
    """Fire the strip's `event` at the panels."""
    visitor.event = gr.EventData(None, data)
    visitor.fire("panels", event)
    assert visitor.breakdowns == []


def answer(visitor: Visitor):
    return visitor.value("answer")


def newest(host: Host) -> Run:
    return host.store.get(host.store.list()[0].id)


def test_alternatives_and_a_branch_of_all_decoders_with_its_trail(house, visitor, parent):
    where = {"run": parent.id, "decoder": "mtad", "at": 2, "ask": "the first"}
    ask(visitor, "select", where)
    found = answer(visitor)
    assert found["ask"] == "the first"
    assert len(found["choices"]) == 20
    assert {each["warped"] for each in found["choices"]} == {None}
    token = found["choices"][1]["id"]
    ask(visitor, "submit", {**where, "token": token, "decoders": ["greedy", "mtad"]})
    child = newest(house[0])
    assert child.study["start"]["trail"][0]["run"] == parent.id
    assert child.study["start"]["ids"][-1] == token
    assert "Done" in visitor.value("progress")


@pytest.mark.parametrize("event", ["select", "submit"])
@pytest.mark.parametrize("data", [
    None, "x", {}, {"run": 1},
    {"run": "nowhere", "decoder": "greedy", "at": 1, "token": 1, "decoders": ["greedy"]},
    {"run": "OWN", "decoder": "greedy", "at": 1, "token": {"a": 1}, "decoders": ["greedy"]},
    {"run": "OWN", "decoder": "greedy", "at": 10**30, "token": 1, "decoders": ["greedy"]},
])  # fmt: skip
def test_whatever_a_client_sends_is_answered_in_a_sentence(house, visitor, parent, event, data):
    if isinstance(data, dict) and data.get("run") == "OWN":
        data = {**data, "run": parent.id}
    before = len(house[0].store.list())
    ask(visitor, event, data)
    assert answer(visitor)["error"].endswith(".")
    assert len(house[0].store.list()) == before


def endpoint(house, name: str):
    return next(function.fn for function in house[1].fns.values() if function.api_name == name)


def test_the_endpoints(house, parent):
    found = endpoint(house, "alternatives")(parent.id, "mtad", 1)["alternatives"]
    assert set(found[0]) == {"id", "text", "raw", "warped"}
    *_, child = endpoint(house, "branch")(parent.id, "mtad", 1, found[2]["id"])
    assert child["start"]["trail"][0]["run"] == parent.id
    assert [r["decoder"] for r in child["results"]] == ["mtad"]
    with pytest.raises(gr.Error):
        list(endpoint(house, "branch")("nowhere", "mtad", 1, 1))
