"""Chats through everything that is made of a prompt: runs, files, links, branches, draws, plans."""

import json
from dataclasses import replace

import pytest
import torch

import decoders
from decoders import InputError, ModelPair
from tests.models import CHATML, INST, build_chat_tokenizer, build_pair
from tests.workbench.conftest import finished
from workbench.experiments.sets import FORMATS, ScoredSet
from workbench.kinds import registry
from workbench.kinds.batch import Batch
from workbench.kinds.branch import branch
from workbench.kinds.comparison import Comparison
from workbench.kinds.draw import Draw
from workbench.measuring.work import admit
from workbench.runs.record import Run
from workbench.runs.store import RunStore
from workbench.show import view
from workbench.show.panel import run_panels
from workbench.studies.prompts import Chat, PromptSet, parse
from workbench.studies.settings import Settings

TALK = [
    {"role": "system", "content": "Rhyme."},
    {"role": "user", "content": "Who are you?"},
    {"role": "assistant", "content": "A fox."},
    {"role": "user", "content": "Why?"},
]
ASKED = [{"role": "user", "content": "Why?"}]


def chats(template: str | None = CHATML) -> ModelPair:
    tokenizer = build_chat_tokenizer(template, ("<s>",))
    return build_pair(torch.float32, tokenizer, vocab_size=len(tokenizer), eos=[])


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return chats()


def study(prompt, *names, **shared) -> Comparison:
    data = {"decoders": names or ("greedy", "speculative"), "max_new_tokens": 6, "timings": 1}
    return Comparison(prompt, Settings.from_json({**data, **shared}))


@pytest.fixture(scope="module")
def run(pair, unmetered) -> Run:
    return finished(pair, study(TALK, temperature=0.8, seed=3), unmetered)


def rendered(pair, messages) -> list[int]:
    return pair.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )


def test_a_run_of_messages_knows_what_the_template_wrote(pair, run):
    assert run.study["prompt"] == TALK
    assert run.version == 3
    for result in run.results:
        sample = result.alone
        assert sample.prompt_ids == rendered(pair, TALK)
        own = [p.text for p in sample.prompt_parts if not p.template]
        assert own == [message["content"] for message in TALK]
        assert sum(part.tokens for part in sample.prompt_parts) == sample.prompt_length
        settings = {"max_new_tokens": 6, "temperature": 0.8, "seed": 3}
        alone = decoders.generate(pair, TALK, result.decoder, **settings)
        assert [token.id for token in sample.tokens] == alone.tokens


def test_runs_and_exports_keep_the_messages(run, tmp_path):
    store = RunStore(tmp_path / "runs.sqlite")
    store.save(run)
    assert store.get(run.id) == run
    (listed,) = store.list()
    assert listed.title.startswith("system: Rhyme. · user: Who are you?")
    assert registry.read(view.WRITERS["json"](run)) == run
    assert all("Who are you?" in view.WRITERS[kind](run) for kind in ("html", "csv"))


def test_a_run_of_the_version_before_opens(run):
    data = run.to_json() | {"version": 2, "study": {**run.study, "prompt": '[{"role": "user"}]'}}
    for result in data["results"]:
        for sample in result["samples"]:
            del sample["prompt_parts"]
    old = Run.from_json(json.dumps(data))
    assert old.version == 3
    assert Comparison.from_json(old.study).prompt == '[{"role": "user"}]'  # a text then, and now


def test_panels_draw_what_the_template_wrote_as_such(run):
    panel = json.loads(run_panels(run)[0])
    assert panel["parts"][0] == ["<|im_start|>system\n", True]
    assert ["Why?", False] in panel["parts"]
    assert panel["prompt"] == "".join(text for text, _ in panel["parts"])
    long = [replace(p, text=p.text * 200) for p in run.results[0].alone.prompt_parts]
    sample = replace(run.results[0].alone, prompt_parts=long)
    run = replace(run, results=[replace(run.results[0], samples=[sample])])
    panel = json.loads(run_panels(run)[0])
    assert [len(panel["prompt"]), len(panel["parts"])] == [401, 1]
    assert panel["prompt"].startswith("…")


def test_a_text_is_asked_in_a_chat_or_continued(pair):
    """Once or never by the template, whose answers open once; the start token is there once."""
    chat, text = rendered(pair, ASKED), pair.tokenizer("Why?").input_ids
    system = rendered(pair, [{"role": "system", "content": "Rhyme."}, *ASKED])
    for settings, ids in (
        ({}, text),
        ({"chat_template": True}, chat),
        ({"chat_template": "auto"}, chat),
        ({"chat_template": False}, text),
        ({"chat_template": True, "system": "Rhyme."}, system),
    ):
        assert admit(pair, study("Why?", **settings)) == [ids]
    assert admit(chats(None), study("Why?", chat_template="auto")) == [text]
    inst = chats(INST)
    assert admit(inst, study("Why?", chat_template=True)) == [rendered(inst, ASKED)]
    twice = inst.tokenizer.apply_chat_template(ASKED, tokenize=False)
    assert admit(inst, study(twice)) == [rendered(inst, ASKED)]


def test_a_run_says_whether_the_template_was_used(pair, unmetered):
    for each, used in ((pair, True), (chats(None), False)):
        run = finished(each, study("Why?", "greedy", chat_template="auto"), unmetered)
        assert run.settings["chat_template"] is used
        assert bool(run.results[0].alone.prompt_parts) is used


@pytest.mark.parametrize(("prompt", "settings", "says"), [
    ("Why?", {"system": "Rhyme."}, "needs the chat template, which is off or missing"),
    (TALK, {"system": "Rhyme."}, "The messages have a system message already; leave"),
    ("Why?", {"system": 5}, "system must be a text, not 5"),
    ("Why?", {"system": "x" * 20_001}, "system has 20,001 characters; give at most 20,000"),
    ("Why?", {"system": "\ud83d"}, "holds half a character"),
    ("Why?", {"chat_template": "yes"}, "chat_template must be"),
])  # fmt: skip
def test_what_no_chat_can_be_told_is_refused(pair, prompt, settings, says):
    with pytest.raises(InputError, match=says):
        admit(pair, study(prompt, **settings))


def test_pairs_without_a_template_say_so():
    for prompt, settings in ((TALK, {}), ("Why?", {"chat_template": True})):
        with pytest.raises(InputError, match="This pair's tokenizer has no chat template"):
            admit(chats(None), study(prompt, **settings))


@pytest.mark.parametrize(("prompt", "shared"), [
    (TALK, {}), ("Why?", {"chat_template": True, "system": "Rhyme."}),
], ids=["messages", "a text"])  # fmt: skip
def test_a_branch_goes_on_with_the_answer(pair, prompt, shared, unmetered):
    """Of a wrapped text it was a text without its template, and asked anew it was another one."""
    run = finished(pair, study(prompt, **shared, temperature=0.8), unmetered)
    parent = run.results[0].alone
    asked = branch(pair, run, "greedy", 2, ord("a"))
    assert isinstance(asked.prompt, Chat)
    assert asked.prompt.messages[-1][0] == "assistant"
    kept = [t.id for t in parent.tokens[:2]]
    assert admit(pair, asked) == [[*parent.prompt_ids, *kept, ord("a")]]
    once_more = branch(pair, finished(pair, asked, unmetered), "greedy", 1, ord("b"))
    assert once_more.prompt.messages[:-1] == asked.prompt.messages[:-1]
    at_once = branch(pair, run, "greedy", 0, "a")
    found = finished(pair, at_once, unmetered).results[0].alone
    assert [p.text for p in found.prompt_parts] == [*(p.text for p in parent.prompt_parts), "a"]


def test_draws_and_batches_take_messages(pair, unmetered):
    settings = {"decoders": ["multinomial"], "max_new_tokens": 3}
    draw = Draw.from_json({"prompt": TALK, "settings": {**settings, "draws": 10}})
    assert Draw.from_json(draw.to_json()) == draw
    found = finished(pair, draw, unmetered)
    assert {s.prompt_length for s in found.results[0].samples} == {len(rendered(pair, TALK))}
    lines = "\n".join(json.dumps({"prompt": prompt}) for prompt in ("Why?", TALK))
    batch = Batch(parse("a.jsonl", lines.encode()), Settings.from_json(settings), (2,))
    assert Batch.from_json(batch.to_json()).prompts[1].text == Chat.of(TALK)
    assert admit(pair, batch) == [pair.tokenizer("Why?").input_ids, rendered(pair, TALK)]
    assert isinstance(batch.prompt_set, PromptSet)


def test_plans_take_messages(tmp_path, pair):
    file = tmp_path / "prompts.jsonl"
    file.write_text(json.dumps({"prompt": TALK, "answer": "b"}) + '\n{"prompt": "Once"}\n')
    own = ScoredSet("own", tuple(FORMATS["own"].read(file)))
    assert [own.text(0), own.text(1)] == [Chat.of(TALK), "Once"]
    other = ScoredSet("own", (own.items[1], own.items[0]))
    assert len({own.revision, other.revision}) == 2
    file.write_text('{"prompt": [{"role": "user"}]}')
    with pytest.raises(InputError, match=r"prompts.jsonl, line 1: Message 1 has no content"):
        tuple(FORMATS["own"].read(file))


def test_the_start_token_is_noted(pair, unmetered, caplog):
    finished(pair, study("<s>a", "greedy"), unmetered)
    says = "The prompt begins with <s>, which the tokenizer adds as well; it is read once."
    assert caplog.messages == [says]
