"""Trials that are not repeated: for the same model on the same machine, and if passed alone."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from decoders import ModelPair, generate
from decoders.engine import trials
from decoders.engine.loading import admission
from decoders.engine.loading.admission import agrees_with_plain_pass
from decoders.engine.lowering.program import Programs
from decoders.engine.trials import trials_of
from decoders.errors import NotPackedError
from tests.models import build, halved

MUCH = 2**30


@pytest.fixture
def made(monkeypatch):
    """The trials that are made: whether passes agree, and programs."""
    found = []

    def agrees(model):
        found.append("passes")
        agrees_with_plain_pass(model)

    agree = Programs._must_agree
    monkeypatch.setattr(admission, "agrees_with_plain_pass", agrees)
    monkeypatch.setattr(
        Programs, "_must_agree", lambda *args: found.append("program") or agree(*args)
    )
    return found


def small():
    """A model whose passes have a program."""
    return halved(build(dtype=torch.float32))


def pair(model, folder, **options):
    return ModelPair(model, None, trials=trials_of(model, "program", MUCH, folder), **options)


def tokens(pair):
    return generate(pair, [3, 5, 7], "greedy", max_new_tokens=12).tokens


def test_a_second_start_tries_nothing_again_and_writes_the_same(tmp_path, made):
    model = small()
    first = tokens(pair(model, tmp_path / "new"))
    assert {*made} == {"passes", "program"}
    made.clear()
    second = pair(small(), tmp_path / "new")
    assert tokens(second) == first
    assert not made


@pytest.mark.parametrize(
    "change", ["weights", "config", "code", "threads", "variable", "version", "passes"]
)
def test_anything_that_decides_how_a_model_computes_makes_a_new_trial(
    tmp_path, made, monkeypatch, change
):
    model = small()
    pair(model, tmp_path)
    made.clear()
    if change == "weights":
        with torch.no_grad():
            model.model.layers[0].mlp.up_proj.weight[1, 2] += 0.01
    elif change == "config":
        model.config.rms_norm_eps *= 2
    elif change == "code":
        kind = type(model.model.norm)
        monkeypatch.setattr(kind, "forward", lambda self, x: x * self.weight)
    elif change == "threads":
        monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    elif change == "variable":
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    elif change == "version":
        monkeypatch.setattr(trials, "version", lambda name: "99")
    passes = "plain" if change == "passes" else "program"
    ModelPair(model, None, passes=passes, trials=trials_of(model, passes, MUCH, tmp_path))
    assert "passes" in made


def test_a_trial_that_failed_is_made_again(tmp_path, monkeypatch):
    model, tried = small(), []

    def fails(found):
        if found.packed:
            tried.append(1)
            raise NotPackedError("it does not agree")

    monkeypatch.setattr(admission, "agrees_with_plain_pass", fails)
    for _ in range(2):
        pair(model, tmp_path)
    assert len(tried) == 2


def test_changed_weights_are_tried_without_what_is_known(tmp_path, made):
    model = small()
    tokens(pair(model, tmp_path))
    known = pair(model, tmp_path)
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.mul_(1.5)
    made.clear()
    tokens(known)
    assert "program" in made


def test_a_large_model_is_tried_each_time(tmp_path):
    assert trials_of(small(), "program", 10, tmp_path) is None


def test_a_model_with_a_hook_is_tried_each_time(tmp_path):
    model = small()
    model.model.norm.register_forward_hook(lambda *_: None)
    assert trials_of(model, "program", MUCH, tmp_path) is None


def test_a_folder_that_cannot_be_written_to_costs_time_alone(tmp_path, made):
    (tmp_path / "file").write_text("no folder can be in it")
    for _ in range(2):
        made.clear()
        assert tokens(pair(small(), tmp_path / "file"))
        assert "passes" in made


def test_few_files_stay_and_several_may_write_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(trials, "MOST", 5)
    known = trials.TrialLog("facts", tmp_path)

    def note(number):
        known.note(str(number))
        os.utime(known._file("0"))  # the newest

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(note, range(40)))
    assert known.passed("0")
    assert len(list(tmp_path.iterdir())) <= 9


def test_quantised_weights_have_no_trials(tmp_path):
    """`load_pair("smollm2", quantization="int8")` ended in a traceback: such weights have no bytes
    that can be read as numbers."""
    torchao = pytest.importorskip("torchao.quantization")
    model = small()
    torchao.quantize_(model, torchao.Int8WeightOnlyConfig())
    assert trials_of(model, "program", MUCH, tmp_path) is None
