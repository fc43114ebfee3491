import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

import decoders
from training import own_text
from training.corpus import END_ID, Mixture
from training.recipe import sizes
from training.weights import save_model

RECIPE = replace(sizes()["tiny"], own_batches=4, own_rows=3, own_length=32)


@pytest.fixture(scope="module")
def target():
    torch.manual_seed(0)
    return RECIPE.target.build(300, 64).eval()


@pytest.fixture
def work(target, tmp_path):
    """A work folder as `train` leaves it for `write`: with the target that writes."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({str(i): i for i in range(300)}, "0"))
    )
    save_model(target, tokenizer, tmp_path / "teacher")
    return tmp_path


@pytest.fixture
def mixture():
    return Mixture([np.random.default_rng(0).integers(1, 300, 500).astype(np.uint16)], [1.0])


def texts(ids):
    assert ids[-1] == END_ID
    return [part.tolist() for part in np.split(ids, np.flatnonzero(ids == END_ID) + 1)[:-1]]


def test_greedy_text_is_what_the_target_prefers(target):
    prompts = np.random.default_rng(1).integers(1, 300, (3, 4))
    written = texts(
        own_text.write_batch(decoders.ModelPair(target, None), prompts, 20, 0, temperature=0.0)
    )
    for prompt, text in zip(prompts.tolist(), written, strict=True):
        assert text[:4] == prompt
        logits = target(torch.tensor([text])).logits[0, 3:-1]
        reached = len(text) == 21  # with the end that closes a text of full length
        assert text[4:-1] == logits.argmax(-1).tolist()[: len(text) - 5]
        assert reached or logits[-1].argmax() == END_ID


def test_every_setting_has_its_turn_and_a_killed_run_resumes(mixture, work, monkeypatch):
    asked = []

    def noted(pair, prompts, length, seed, **how):
        asked.append((seed, how))
        return own_text_write_batch(pair, prompts, length, seed, **how)

    own_text_write_batch = own_text.write_batch
    monkeypatch.setattr(own_text, "write_batch", noted)
    whole = own_text.write(mixture, work, RECIPE, "cpu")
    assert [how for _, how in asked] == [*own_text.SETTINGS, own_text.SETTINGS[0]]
    # no two texts share a seed
    assert len({seed // RECIPE.own_rows for seed, _ in asked}) == RECIPE.own_batches
    (work / "own" / "0002.npy").unlink()
    asked.clear()
    again = own_text.write(mixture, work, RECIPE, "cpu")
    assert [how for _, how in asked] == [own_text.SETTINGS[2]]
    np.testing.assert_array_equal(whole.arrays[0], again.arrays[0])


def test_processes_write_what_one_writes(mixture, work, monkeypatch):
    alone = own_text.write(mixture, work, RECIPE, "cpu")
    shutil.rmtree(work / "own")
    monkeypatch.setattr(own_text, "WORTH_A_PROCESS", 2)
    monkeypatch.setattr(own_text.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(own_text, "write_batch", None)  # here: the processes have their own
    np.testing.assert_array_equal(
        own_text.write(mixture, work, RECIPE, "cpu").arrays[0], alone.arrays[0]
    )


def test_a_target_that_fails_leaves_no_text(target, mixture, tmp_path):
    broken = RECIPE.target.build(300, 64)
    pair = decoders.ModelPair(broken, None)
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.fill_(torch.nan)
    with pytest.raises(decoders.ModelError):
        own_text.write_batch(pair, np.ones((2, 4), int), 10, 0, temperature=0.0)
