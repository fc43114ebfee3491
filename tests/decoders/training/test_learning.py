"""Training heads and drafts: they learn what a draft will do, go on after a kill, can be loaded."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from decoders import Head, InputError, ModelPair, generate, load_pair
from decoders.engine.loading.heads import load_head
from decoders.engine.protocols import Features
from decoders.training import texts
from decoders.training.learning import Training
from decoders.training.students import HeadStudent, Recipe, unrolled
from decoders.tree import TokenTree
from tests.models import build, build_tokenizer

ROOT = Path(__file__).parents[3]
TINY = Recipe(
    inner=24, heads=2, vocabulary=50, steps=60, rows=8, length=24, rate=0.02, own_texts=16, probes=8
)
DRAFT = replace(TINY, kind="draft", width=16, layers=1)
# Of tokens that a drafter in training keeps where the draft begins; drawn weights keep 0.02.
REACHED = 0.4


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """Words that follow one another with a pattern, as documents of one file."""
    draw = random.Random(0)
    words = ["ab", "ba", "abab", "bb", "aab"]
    documents = []
    for _ in range(150):
        at, said = 0, []
        for _ in range(120):
            at = (at + draw.choice((1, 1, 1, 2))) % len(words)
            said.append(words[at])
        documents.append(" ".join(said))
    file = tmp_path_factory.mktemp("texts") / "texts.txt"
    file.write_text("\n<|endoftext|>\n".join(documents))
    return file


@pytest.fixture(scope="module")
def pair(lines):
    """A target that has learnt the pattern; what a target with drawn weights says, none can."""
    torch.manual_seed(0)
    target, tokenizer = build(num_hidden_layers=4, dtype=torch.float32), build_tokenizer()
    ids = [i for text in texts.read_texts([lines]) for i in tokenizer(text).input_ids]
    optimizer, draw = torch.optim.AdamW(target.parameters(), lr=4e-3), np.random.default_rng(0)
    target.train()
    for _ in range(120):
        starts = draw.integers(0, len(ids) - 33, 16)
        rows = torch.tensor([ids[i : i + 33] for i in starts])
        logits = target(rows[:, :-1]).logits
        F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return ModelPair(target.eval(), None, tokenizer)


@pytest.fixture(
    scope="module",
    params=[replace(TINY, width=16), pytest.param(DRAFT, marks=pytest.mark.slow)],
    ids=str,
)
def trained(request, pair, lines, tmp_path_factory):
    folder = tmp_path_factory.mktemp("drafter")
    training = Training(pair, folder / "work", request.param, [lines])
    list(training.write_own())
    before = training.acceptance()
    steps = list(training.run())
    training.student.save(folder / "out")
    return training, before, steps, folder / "out"


@pytest.mark.slow
def test_it_learns(trained):
    training, before, steps, _ = trained
    assert [step for step, _, _ in steps] == list(range(1, TINY.steps + 1))
    *_, after = steps[-1]
    assert after == training.acceptance()
    for shares, first in ((after.greedy, before.greedy), (after.drawn, before.drawn)):
        assert shares[0] > max(REACHED, first[0])


@pytest.mark.slow
def test_what_is_saved_drafts_for_its_target(trained, pair, tmp_path):
    training, *_, out = trained
    pair.target.save_pretrained(tmp_path / "target")
    pair.tokenizer.save_pretrained(tmp_path / "target")
    loaded = load_pair(tmp_path / "target", out, dtype="float32")
    if training.recipe.kind == "head":
        assert isinstance(loaded.draft, Head)
        assert loaded.draft.reads == training.student.reads
    options = {"max_new_tokens": 20, "temperature": 0.0}
    fast = generate(loaded, "ab ba abab", "speculative", **options)
    assert fast.tokens == generate(pair, "ab ba abab", "greedy", **options).tokens
    assert fast.metrics.accepted


def test_a_head_without_embeddings_of_its_own_ships_none(pair, lines, tmp_path):
    student = Training(pair, tmp_path / "work", TINY, [lines]).student
    student.save(tmp_path / "head")
    head = load_head(str(tmp_path / "head"), pair.target)
    shared = pair.target.get_input_embeddings().weight
    assert head.module.embed_tokens.weight.data_ptr() == shared.data_ptr()
    assert all(weight.data_ptr() != shared.data_ptr() for weight in head.parameters())
    size = sum(file.stat().st_size for file in (tmp_path / "head").glob("*.safetensors"))
    assert size < 2 * sum(weight.numel() for weight in head.parameters()) + 8192
    # What is loaded is what was trained, up to rounding to float16.
    again = HeadStudent.saved(tmp_path / "head", pair)
    trained = [name for name in again.module.state_dict() if name != "embed_tokens.weight"]
    assert len(trained) > 10
    for name in trained:
        weight = again.module.state_dict()[name]
        kept = student.module.state_dict()[name].half().float()
        torch.testing.assert_close(weight, kept, msg=name)


def test_training_sees_what_a_draft_will_do(pair, lines, tmp_path):
    """Place by place, the logits that passes give to a draft that starts anywhere in a text."""
    Training(pair, tmp_path / "work", TINY, [lines]).student.save(tmp_path / "head")
    target, head = pair.target, load_head(str(tmp_path / "head"), pair.target)
    tokens = [3, 9, 14, 5, 27, 33, 8]
    with torch.inference_mode():
        found = target(torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
        states = [found.hidden_states[layer][0] for layer in head.reads]
        entering = head.module.entering([state[None] for state in states])
        steps = list(unrolled(head.module, torch.tensor([tokens]), entering, 3))
        for start in range(1, len(tokens) - 2):
            tree, passes = TokenTree(tokens[: start + 1]), head.engine(20)
            passes.admit(tree, 20)
            passes.learn(tree, Features(range(start), tuple(state[:start] for state in states)))
            node = tree.trunk[-1]
            for k in range(3):
                (answer,) = passes.run([(tree, [node])])
                expected = head.module.lm_head(steps[k][0, start - 1 + k])
                row = answer.logits[0][head.ids]
                torch.testing.assert_close(row, expected, rtol=1e-4, atol=1e-4)
                if start + k + 1 < len(tokens):
                    node = tree.add(node, tokens[start + k + 1])


def test_a_training_that_was_killed_goes_on_as_if_it_had_not(pair, lines, tmp_path):
    def weights(training):
        list(training.run())
        return training.student.module.state_dict()

    recipe = replace(TINY, steps=8)
    whole = weights(Training(pair, tmp_path / "whole", recipe, [lines]))
    first = Training(pair, tmp_path / "cut", recipe, [lines])
    steps = first.run()
    for _ in range(3):
        next(steps)
    first.checkpoint()
    steps.close()
    again = Training(pair, tmp_path / "cut", recipe, [lines])
    assert again.step == 3
    for name, weight in weights(again).items():
        torch.testing.assert_close(weight, whole[name])


def test_a_head_of_another_kind_cannot_be_trained_on(pair, lines, tmp_path):
    """A head of EAGLE-3 has other weights."""
    with pytest.raises(InputError, match="The head"):
        Training(pair, tmp_path, TINY, [lines], start=ROOT / "assets/stories/head")


@pytest.mark.slow
def test_the_command_survives_kill_9(pair, lines, tmp_path):
    pair.target.save_pretrained(tmp_path / "target")
    pair.tokenizer.save_pretrained(tmp_path / "target")
    out = tmp_path / "head"
    command = [
        sys.executable, "-m", "workbench", "train-head", str(tmp_path / "target"),
        "--text", str(lines), "--out", str(out), "--steps", "12", "--length", "32",
        "--own-texts", "2",
    ]  # fmt: skip
    options = {
        "cwd": ROOT, "env": os.environ | {"OMP_NUM_THREADS": "1"}, "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE, "text": True,
    }  # fmt: skip
    with subprocess.Popen(command, **options) as process:
        while process.poll() is None and not (out / "work" / "own-0000.jsonl").exists():
            time.sleep(0.02)
        finished = process.poll() is not None
        process.send_signal(signal.SIGKILL)
    assert finished or not (out / "config.json").exists()
    if not finished:
        done = subprocess.run(command, **options, check=False)
        assert done.returncode == 0, done.stderr
        said = " ".join(done.stdout.split())
        assert "held-out acceptance by place" in said
        assert f"saved in {out}" in said
    assert isinstance(load_pair(tmp_path / "target", out).draft, Head)


def test_another_training_in_the_same_folder_is_refused(pair, lines, tmp_path):
    """With other texts it went on, and its output rows then meant other tokens."""
    Training(pair, tmp_path / "work", TINY, [lines])
    other = tmp_path / "other.txt"
    other.write_text(lines.read_text()[::-1])
    model = build(num_hidden_layers=4, dtype=torch.float32, seed=5)
    target = ModelPair(model, None, pair.tokenizer)
    wider = replace(TINY, width=32)
    for each, file, recipe in ((pair, lines, wider), (pair, other, TINY), (target, lines, TINY)):
        with pytest.raises(InputError, match="holds another training; name another"):
            Training(each, tmp_path / "work", recipe, [file])
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match="cannot be used"):
        Training(pair, file, TINY, [lines])


def test_a_broken_checkpoint_or_text_is_named(pair, lines, tmp_path):
    training = Training(pair, tmp_path, TINY, [lines])
    (tmp_path / "own-0000.jsonl").write_bytes(b"broken")
    with pytest.raises(InputError, match=r"own-0000\.jsonl is not "):
        next(training.run())
    (tmp_path / "checkpoint.pt").write_bytes(b"broken")
    with pytest.raises(InputError, match=r"checkpoint\.pt is broken"):
        Training(pair, tmp_path, TINY, [lines])


def test_questions_are_answered_and_what_shares_words_with_held_out_ones_is_left_out(
    pair, lines, tmp_path
):
    held_out, questions = tmp_path / "held-out.jsonl", tmp_path / "questions.txt"
    said = "bb bb aab aab ab ab ba ba"
    held_out.write_text(json.dumps({"question": f"aab {said}"}) + "\n")
    questions.write_text(f"ab ba\n{said} bb\nbb aab\n")
    training = Training(pair, tmp_path / "work", TINY, [lines], [questions], held_out=[held_out])
    assert training.dropped == 1
    assert sorted(map(pair.tokenizer.decode, training.asked)) == ["ab ba", "bb aab"]
    assert training.probes == [pair.tokenizer(f"aab {said}").input_ids]
    list(training.write_own())
    rows = list(texts.read_answers([tmp_path / "work" / "own-0000.jsonl"], pair.vocabulary))
    assert sorted(row.ids[: row.prompt].tolist() for row in rows) == sorted(training.asked)
    # Without such a file the first of a hundred questions is held out.
    other = Training(pair, tmp_path / "alone", TINY, [lines], [questions])
    assert other.probes == [pair.tokenizer("ab ba").input_ids]
    assert (len(other.asked), other.dropped) == (2, 0)
    # What was answered elsewhere is learnt from as it is.
    elsewhere = Training(
        pair, tmp_path / "other", TINY, answers=[tmp_path / "work" / "own-0000.jsonl"],
        held_out=[held_out],
    )  # fmt: skip
    assert {tuple(t.ids) for t in elsewhere.given} == {tuple(t.ids[:24]) for t in rows}


@pytest.mark.parametrize(
    "change",
    [{"width": 30}, {"seed": 10**30}, {"steps": 0}, {"rows": True}, {"kind": "tail"}],
    ids=str,
)
def test_a_recipe_that_makes_nothing_is_refused(change):
    with pytest.raises(InputError, match=f"^{next(iter(change))} must be "):
        replace(TINY, **change)


def test_text_that_cannot_be_used_is_named(pair, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("ab")
    answers = tmp_path / "answers.jsonl"
    answers.write_text(f"{[[3] * 60, [5], 0.0]}\n" * 400)
    with pytest.raises(InputError, match="No text is long enough"):  # it looked for one for ever
        next(Training(pair, tmp_path / "few", replace(TINY, own_texts=0), answers=[answers]).run())
    with pytest.raises(InputError, match="hold too little text; give at least"):
        Training(pair, tmp_path / "work", TINY, [short])
    broken = tmp_path / "broken.txt.xz"
    broken.write_bytes(b"\x00\xff")
    for file in (tmp_path / "none.txt", broken, tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            list(texts.read_texts([file]))
    broken = tmp_path / "broken.jsonl"
    for line in ('{"text": 1}', "{"):
        broken.write_text(line)
        with pytest.raises(InputError, match="of JSON without a"):
            texts.read_questions([broken])
    for line in ("[[1], [2]", "[[1], [10000000]]", '[["a"], [1]]'):
        broken.write_text(line)
        with pytest.raises(InputError, match="ids below 100; give answers"):
            list(texts.read_answers([broken], 100))
