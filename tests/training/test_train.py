import errno
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from decoders.training.learning import InFloat32
from training import train as script
from training.attention import block_attention
from training.fit import fit, next_token_loss
from training.recipe import Run, Shape, sizes
from training.weights import first_weights, save_pair

ROOT = Path(__file__).parents[2]
TINY = sizes()["tiny"]
SMALL = Shape(width=16, layers=1, heads=1, feed_forward=32)
RUN = Run(
    steps=8, tokens_per_step=64, decay_steps=3, warm_up_steps=1, short=16, compile=False,
    checkpoint_every=3,
)  # fmt: skip


def train_tiny(work, run=RUN, stop_at=None, lengths=None):
    """Trains a tiny target on noise.

    `stop_at` kills the training in that step; `lengths` collects those of the batches."""

    def batches(rng, step, rows, length):
        if step == stop_at:
            raise KeyboardInterrupt
        if lengths is not None:
            lengths.append(length)
        return rng.integers(0, 300, (rows, length + 1))

    work.mkdir(exist_ok=True)
    torch.manual_seed(0)
    model, probe = TINY.target.build(300, 32), np.ones((2, 17), np.int64)
    named = {"name": "target", "shape": TINY.target, "run": run, "work": work}
    return fit(model, next_token_loss, batches, probe, seed=0, device="cpu", **named)


def test_a_resumed_run_ends_where_an_uninterrupted_one_does(tmp_path):
    whole = train_tiny(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train_tiny(tmp_path / "killed", stop_at=5)
    resumed = train_tiny(tmp_path / "killed")
    for (name, a), b in zip(whole.state_dict().items(), resumed.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, msg=name)
    log = (tmp_path / "killed" / "losses.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in log] == [1, 2, 3, 4, 5, 4, 5, 6, 7, 8]


def test_steps_may_change_on_the_plateau_only(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train_tiny(tmp_path, stop_at=4)
    train_tiny(tmp_path, replace(RUN, steps=6))
    with pytest.raises(ValueError, match=r"plateau.*give 6 steps, 3 of them decay"):
        train_tiny(tmp_path, RUN)


@pytest.mark.parametrize("length", [60, 300])
def test_block_attention_is_attention(length):
    numbers = torch.randn(3, 2, 4, length, 8, dtype=torch.float64)
    query, key, value = numbers.requires_grad_().unbind()
    ours, _ = block_attention(None, query, key, value, None, scaling=8**-0.5)
    theirs = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    # its softmax is float32
    torch.testing.assert_close(ours.transpose(1, 2), theirs, atol=1e-5, rtol=1e-5)


def test_training_starts_from_saved_weights_and_their_tokenizer(data, tmp_path):
    script.train(TINY, data, tmp_path / "first", tmp_path / "saved", "cpu")
    saved = tmp_path / "saved" / "target"
    still = replace(TINY, seed=1, target_run=script.with_steps(TINY.target_run, 0))
    script.train(still, data, tmp_path / "second", tmp_path / "again", "cpu", start_from=saved)
    for name in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / "again" / "target" / name).read_bytes() == (saved / name).read_bytes()


def test_the_weights_of_a_checkpoint_are_exported_for_a_later_start(data, tmp_path):
    arguments = ["--size=tiny", f"--work={tmp_path / 'work'}", f"--export={tmp_path / 'weights'}"]
    with pytest.raises(SystemExit, match=r"no target\.pt"):
        script.main(arguments)
    script.train(TINY, data, tmp_path / "work", tmp_path / "out", "cpu")
    script.main(arguments)
    kept = (tmp_path / "weights" / "model.safetensors").read_bytes()
    assert kept == (tmp_path / "out" / "target" / "model.safetensors").read_bytes()


def test_weights_of_another_size_are_named(tmp_path):
    replace(SMALL, width=24).build(300, 32).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"another size.*--size"):
        first_weights(TINY.target, 300, 64, tmp_path)


def test_weights_of_half_the_width_grow_and_change_nothing_at_first(tmp_path):
    """The larger target begins with all that the smaller one learned.

    Without noise both halves of it would stay alike for ever."""
    torch.manual_seed(0)
    shape, ids = replace(TINY.target, width=16, heads=1, feed_forward=32), torch.arange(60)[None]
    small = shape.build(300, 64).eval()
    small.save_pretrained(tmp_path)
    grown = first_weights(TINY.target, 300, 64, tmp_path).eval()
    assert grown.num_parameters() == TINY.target.build(300, 64).num_parameters()
    torch.testing.assert_close(grown(ids).logits, small(ids).logits, rtol=0, atol=1e-5)
    upper, lower = grown.model.layers[0].mlp.up_proj.weight.chunk(2)
    assert (upper - lower).abs().max() > 0.01


def test_a_checkpoint_of_another_size_is_named(tmp_path):
    train_tiny(tmp_path)
    (tmp_path / "tokens").mkdir()
    (tmp_path / "target.pt").rename(tmp_path / "draft.pt")
    torch.manual_seed(0)
    settings = {"name": "draft", "shape": SMALL, "run": RUN, "work": tmp_path}
    with pytest.raises(ValueError, match=r"draft.pt is of another size.*--size.*--work"):
        fit(SMALL.build(300, 32), next_token_loss, None, None, seed=0, device="cpu", **settings)


def test_a_full_disk_leaves_the_old_model_whole(tmp_path):
    torch.manual_seed(0)
    target, draft, tokenizer = (TINY.target.build(300, 32), SMALL.build(300, 32), FakeTokenizer())
    save_pair(target, draft, tokenizer, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    tokenizer.room = 1  # the second folder does not fit
    with pytest.raises(OSError, match="disk is full: free some space"):
        save_pair(target, draft, tokenizer, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    save_pair(target, draft, FakeTokenizer(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["draft", "target"]


class FakeTokenizer:
    room = 99

    def save_pretrained(self, folder):
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= 1


def command(data, work, out):
    flags = ["--size=tiny", f"--data={data}", f"--work={work}", f"--out={out}"]
    return [sys.executable, "-m", "training.train", *flags]


@pytest.mark.slow
def test_one_command_survives_kill_9_and_saves_a_pair(data, tmp_path):
    work, out = tmp_path / "work", tmp_path / "out"
    quiet = {
        "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT,
        "env": os.environ | {"OMP_NUM_THREADS": "1"},
    }  # fmt: skip
    for stage in (work / "small.pt", work / "target.pt", work / "draft" / "own-0000.jsonl"):
        with subprocess.Popen(command(data, work, out), **quiet) as process:
            while process.poll() is None and not stage.exists():
                time.sleep(0.02)
            finished = process.poll() is not None  # a busy machine looks too late
            process.send_signal(signal.SIGKILL)
        assert finished or not out.exists()
    done = subprocess.run(command(data, work, out), **quiet, check=False)
    assert done.returncode == 0, done.stderr
    for name, parameters in (("target", 28_000), ("draft", 8_000)):
        model = AutoModelForCausalLM.from_pretrained(out / name)
        tokenizer = AutoTokenizer.from_pretrained(out / name)
        assert model.dtype == torch.bfloat16
        assert 0.5 < model.num_parameters() / parameters < 2
        ids = tokenizer("The small fox", return_tensors="pt")
        assert model.generate(**ids, max_new_tokens=3).shape[1] > ids.input_ids.shape[1]


def test_bad_input_is_one_sentence(tmp_path):
    with pytest.raises(SystemExit) as stop:
        script.main(command(tmp_path / "no", tmp_path / "work", tmp_path / "out")[3:])
    assert "does not exist" in str(stop.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("quick", [True, False])
def test_muon_multiplies_in_the_precision_of_the_passes(quick):
    """Its products in bfloat16 took half of a step where the processor has none."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.zeros(8, 12))
    weight.grad = torch.randn(8, 12)
    with nullcontext() if quick else InFloat32():
        torch.optim.Muon([weight], lr=1.0, weight_decay=0.0, adjust_lr_fn="original").step()
    step = weight.detach()
    assert torch.equal(step, step.bfloat16().float()) == quick
