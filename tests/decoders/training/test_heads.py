"""Training a head: it learns what a draft will do, goes on after a kill, and can be loaded."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from decoders import Head, InputError, ModelPair, generate, load_pair
from decoders.engine.answers import Features
from decoders.training.heads import Training
from decoders.training.recipe import Recipe
from decoders.training.texts import read_texts
from decoders.training.unrolled import unrolled
from decoders.tree import TokenTree
from tests.models import build, build_tokenizer

ROOT = Path(__file__).parents[3]
TINY = Recipe(
    width=16, inner=24, heads=2, vocabulary=50, steps=60, rows=8, length=24, places=3, rate=0.02,
    own_texts=16, compiled=False,
)  # fmt: skip


@pytest.fixture(scope="module")
def pair():
    return ModelPair(build(num_hidden_layers=4, dtype=torch.float32), None, build_tokenizer())


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Lines that repeat themselves, as documents of one file."""
    draw = random.Random(0)
    words = ["ab", "ba", "abab", "bb", "aab"]
    documents = [" ".join(draw.choices(words, k=400)) for _ in range(150)]
    file = tmp_path_factory.mktemp("texts") / "texts.txt"
    file.write_text("\n<|endoftext|>\n".join(documents))
    return file


@pytest.fixture(scope="module")
def trained(pair, texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("head")
    training = Training(pair, [texts], folder / "work", TINY)
    before = training.acceptance()
    steps = list(training.run())
    training.save(folder / "out")
    return training, before, steps, folder / "out"


def test_it_learns(trained):
    training, before, steps, _ = trained
    assert [each.step for each in steps] == list(range(1, TINY.steps + 1))
    assert steps[-1].seconds_left == 0
    assert steps[-1].acceptance == training.acceptance()
    assert len(before) == TINY.places
    assert all(after > 1.2 * b for after, b in zip(steps[-1].acceptance, before, strict=True))


def test_the_head_that_is_saved_drafts_for_its_target(trained, pair, tmp_path):
    training, *_, out = trained
    pair.target.save_pretrained(tmp_path / "target")
    pair.tokenizer.save_pretrained(tmp_path / "target")
    loaded = load_pair(tmp_path / "target", out, dtype="float32")
    assert isinstance(loaded.draft, Head)
    assert loaded.draft.reads == training.spec.reads
    options = {"max_new_tokens": 20, "temperature": 0.0}
    fast = generate(loaded, "ab ba abab", "speculative", **options)
    assert fast.tokens == generate(pair, "ab ba abab", "greedy", **options).tokens
    assert fast.metrics.draft_calls


def test_training_sees_what_a_draft_will_do(trained, pair):
    """Place by place, the logits that passes give to a draft that starts anywhere in a text."""
    _, *_, out = trained
    target = pair.target
    from decoders.engine.loading.heads import load_head

    head = load_head(str(out), target)
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
                expected = steps[k][0, start - 1 + k]
                torch.testing.assert_close(
                    answer.logits[0][head.ids], expected, rtol=1e-4, atol=1e-4
                )
                if start + k + 1 < len(tokens):
                    node = tree.add(node, tokens[start + k + 1])


def test_a_training_that_was_killed_goes_on_as_if_it_had_not(trained, pair, texts, tmp_path):
    training, *_ = trained
    first = Training(pair, [texts], tmp_path, TINY)
    steps = first.run()
    for _ in range(25):
        next(steps)
    first.checkpoint()
    steps.close()
    again = Training(pair, [texts], tmp_path, TINY)
    assert again.step == 25
    assert [each.step for each in again.run()] == list(range(26, TINY.steps + 1))
    for name, weight in again.module.state_dict().items():
        torch.testing.assert_close(weight, training.module.state_dict()[name])


def test_the_command_survives_kill_9(pair, texts, tmp_path):
    pair.target.save_pretrained(tmp_path / "target")
    pair.tokenizer.save_pretrained(tmp_path / "target")
    out = tmp_path / "head"
    command = [
        sys.executable, "-m", "workbench", "train-head", str(tmp_path / "target"),
        "--text", str(texts), "--out", str(out), "--width", "16", "--steps", "12",
        "--own-texts", "2", "--not-compiled", "--no-advice",
    ]  # fmt: skip
    options = {
        "cwd": ROOT,
        "env": os.environ | {"OMP_NUM_THREADS": "1"},
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    with subprocess.Popen(command, **options) as process:
        while process.poll() is None and not (out / "work" / "own-0000.npy").exists():
            time.sleep(0.02)
        finished = process.poll() is not None
        process.send_signal(signal.SIGKILL)
    assert finished or not (out / "config.json").exists()
    if not finished:
        done = subprocess.run(command, **options, check=False)
        assert done.returncode == 0, done.stderr
        said = " ".join(done.stdout.split())
        assert "held-out acceptance at temperature 1" in said
        assert f"saved in {out}" in said
    assert isinstance(load_pair(tmp_path / "target", out).draft, Head)


def test_another_training_in_the_same_folder_is_refused(pair, texts, tmp_path):
    """With other texts it went on, and its output rows then meant other tokens."""
    Training(pair, [texts], tmp_path / "work", TINY)
    other = tmp_path / "other.txt"
    other.write_text(texts.read_text()[::-1])
    target = ModelPair(
        build(num_hidden_layers=4, dtype=torch.float32, seed=5), None, pair.tokenizer
    )
    for each, files, recipe in (
        (pair, [texts], replace(TINY, width=32)),
        (pair, [other], TINY),
        (target, [texts], TINY),
    ):
        with pytest.raises(InputError, match="holds the training of another head; name another"):
            Training(each, files, tmp_path / "work", recipe)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match="cannot be used"):
        Training(pair, [texts], file, TINY)


def test_a_broken_checkpoint_or_text_is_named(pair, texts, tmp_path):
    training = Training(pair, [texts], tmp_path, TINY)
    (tmp_path / "own-0000.npy").write_bytes(b"broken")
    with pytest.raises(InputError, match=r"own texts in .* are broken"):
        next(training.run())
    (tmp_path / "checkpoint.pt").write_bytes(b"broken")
    with pytest.raises(InputError, match=r"checkpoint\.pt is broken"):
        Training(pair, [texts], tmp_path, TINY)


def test_one_long_document_is_enough(pair, tmp_path):
    file = tmp_path / "one.txt"
    file.write_text("ab ba abab " * 200)
    training = Training(pair, [file], tmp_path / "work", TINY)
    assert len(training.held_out) == 2 * TINY.length
    assert len(training.ids) > len(training.held_out)


@pytest.mark.parametrize(
    "change",
    [{"width": 0}, {"width": 30}, {"seed": 10**30}, {"vocabulary": 1}, {"own_texts": -1},
     {"steps": 0}, {"rows": True}],
    ids=str,
)  # fmt: skip
def test_a_recipe_that_makes_no_head_is_refused(change):
    with pytest.raises(InputError, match=f"^{next(iter(change))} must be a "):
        replace(TINY, **change)


def test_without_a_compiler_it_trains_all_the_same(pair, texts, tmp_path, monkeypatch, caplog):
    def failing(*_):
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(torch, "compile", lambda function, **_: failing)
    training = Training(pair, [texts], tmp_path, replace(TINY, compiled=True, own_texts=0))
    assert next(training.run()).step == 1
    assert "is not compiled (no C++ compiler); it takes longer" in caplog.text


def test_text_that_cannot_be_used_is_named(pair, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("ab")
    with pytest.raises(InputError, match="hold too little text; give at least"):
        Training(pair, [short], tmp_path / "work", TINY)
    broken = tmp_path / "broken.txt.xz"
    broken.write_bytes(b"\x00\xff")
    for file in (tmp_path / "none.txt", broken, tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            list(read_texts([file]))


def test_layers_that_the_target_has_not_are_named(pair, texts, tmp_path):
    with pytest.raises(InputError, match="has hidden states 0 to 4, and 9 was asked for"):
        Training(pair, [texts], tmp_path, replace(TINY, reads=(1, 9)))


def test_a_target_without_a_tokenizer_is_refused(pair, texts, tmp_path):
    with pytest.raises(InputError, match="needs the target's tokenizer"):
        Training(ModelPair(pair.target, None), [texts], tmp_path, TINY)
