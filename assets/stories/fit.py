"""One training loop for target and draft: bfloat16 passes, float32 weights, Muon and AdamW, checkpoints that survive a kill."""

import json
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from attention import NAME as BLOCK_ATTENTION
from recipe import Run, Shape
from saving import atomic
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm
from transformers import PreTrainedModel

MICRO_BATCH = {"cpu": 4096, "cuda": 16384}  # tokens of one forward and backward pass: what the caches, the memory like
SHARP = 0.7  # of the distributions that a draft is taught
CHECKPOINT_SECONDS = 240  # between two checkpoints at most, however slow the steps are
Batches = Callable[
    [np.random.Generator, int, int, int], np.ndarray
]  # (rng, step, rows, length) -> (rows, length + 1) ids


def next_token_loss(model: PreTrainedModel, tokens: Tensor) -> Tensor:
    """Mean cross-entropy in nats of tokens (B, T + 1), each given those before it."""
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def distillation_loss(target: PreTrainedModel, model: PreTrainedModel, tokens: Tensor) -> Tensor:
    """How far the next-token distributions q of a model are from those of the target, p, over tokens (B, T + 1), on average: their
    distance (Leviathan et al. 2023, corollary 3.6: one minus the chance that a drafted token is accepted) plus KL(p || q) in nats
    of both at the temperature SHARP, for the place of the likely tokens is what counts (Zhou et al. 2024, DistillSpec)."""
    tokens = tokens[:, :-1]
    with torch.no_grad():
        p = target(input_ids=tokens, use_cache=False).logits.flatten(0, 1).float()
        sharp_p = F.log_softmax(p / SHARP, -1)
    q = model(input_ids=tokens, use_cache=False).logits.flatten(0, 1).float()
    distance = (F.softmax(p, -1) - F.softmax(q, -1)).abs().sum(-1) / 2
    divergence = (sharp_p.exp() * (sharp_p - F.log_softmax(q / SHARP, -1))).sum(-1)
    return (distance + divergence).mean()


def optimizers(model: PreTrainedModel, run: Run) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embedding and norms; each group remembers its `peak` rate."""
    embedding = model.get_input_embeddings().weight
    matrices = [p for p in model.parameters() if p.ndim == 2 and p is not embedding]
    rest = [p for p in model.parameters() if p.ndim != 2]
    muon = {"params": matrices, "peak": run.muon_rate, "weight_decay": run.weight_decay}
    adam = [{"params": [embedding], "peak": run.adam_rate}, {"params": rest, "peak": run.adam_rate}]
    return [torch.optim.Muon([muon], lr=run.muon_rate), torch.optim.AdamW(adam, betas=(0.9, 0.95), weight_decay=0.0)]


def in_half(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of `model` with bfloat16 weights. Its buffers stay float32: rounded frequencies would turn late positions by whole
    radians."""
    copy = deepcopy(model)
    for parameter in copy.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    return copy


def half_twin(model: PreTrainedModel) -> PreTrainedModel:
    """The bfloat16 copy that makes the passes of training, where it is: on a CPU with attention of its own."""
    twin = in_half(model)
    if twin.device.type == "cpu":
        twin.set_attn_implementation(BLOCK_ATTENTION)
    return twin


def learn(
    loss: Callable[[Tensor], Tensor],
    tokens: Tensor,
    model: PreTrainedModel,
    twin: PreTrainedModel,
    opts: list[torch.optim.Optimizer],
    rate: float,
) -> float:
    """One step on tokens (B, T + 1) at `rate` times the peak rates; returns its `loss`, which passes through the `twin`. The
    gradients of its bfloat16 weights add up in the float32 weights of `model`, and these are copied back."""
    weights, halves, value = list(model.parameters()), list(twin.parameters()), 0.0
    for part in tokens.split(max(MICRO_BATCH[tokens.device.type] // (tokens.shape[1] - 1), 1)):
        share = loss(part) * (len(part) / len(tokens))
        share.backward()
        value += share.item()
        for half, weight in zip(halves, weights, strict=True):
            weight.grad = half.grad.float() if weight.grad is None else weight.grad.add_(half.grad)
            half.grad = None
    for opt in opts:
        for group in opt.param_groups:
            group["lr"] = group["peak"] * rate
        opt.step()
        opt.zero_grad()
    with torch.no_grad():
        torch._foreach_copy_(halves, weights)
    return value


def load_checkpoint(path: Path, shape: Shape, run: Run) -> dict:
    """The checkpoint at `path`; ValueError if it is of another size, or if its steps can no longer be changed."""
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    if checkpoint["shape"] != asdict(shape):
        raise ValueError(
            f"The checkpoint {path} is of another size ({checkpoint['shape']}, not {asdict(shape)}); "
            "give its own --size, or another folder with --work."
        )
    steps, decay_steps, step = (checkpoint[key] for key in ("steps", "decay_steps", "step"))
    if (steps, decay_steps) != (run.steps, run.decay_steps) and step > min(steps - decay_steps, run.plateau_end):
        raise ValueError(
            f"The checkpoint {path} at step {step} is past the plateau of {run.steps} or of its own {steps} steps, so their "
            f"number can no longer be changed; give {steps} steps, {decay_steps} of them decay."
        )
    return checkpoint


def fit(
    model: PreTrainedModel,
    loss_of: Callable[[PreTrainedModel, Tensor], Tensor],
    batches: Batches,
    held_out: np.ndarray,
    *,
    name: str,
    shape: Shape,
    run: Run,
    work: Path,
    seed: int,
    device: str,
) -> PreTrainedModel:
    """Trains `model` in place, resuming from `work/<name>.pt`; logs to `work/losses.jsonl` (nats a token, of the batch
    and of held_out, (B, T + 1) ids). Batches are a function of (seed, step), so the step is all of the data's position
    and a resumed run sees what an uninterrupted one would."""
    path, step = work / f"{name}.pt", 0
    model.to(device).train()
    opts = optimizers(model, run)
    if path.is_file():
        checkpoint = load_checkpoint(path, shape, run)
        step = checkpoint["step"]
        model.load_state_dict(checkpoint["model"])
        for opt, state in zip(opts, checkpoint["optimizers"], strict=True):
            opt.load_state_dict(state)
    twin = half_twin(model)

    def loss(tokens: Tensor) -> Tensor:
        return loss_of(twin, tokens)

    compiled = torch.compile(loss, dynamic=False) if run.compile else loss
    start = saved = time.monotonic()
    with open(work / "losses.jsonl", "a") as log, tqdm(total=run.steps, initial=step, desc=name) as bar:
        while step < run.steps:
            length = run.short if step < run.steps - run.whole_steps else model.config.max_position_embeddings
            rng = np.random.default_rng([seed, step])
            tokens = torch.from_numpy(batches(rng, step, max(run.tokens_per_step // length, 1), length)).to(device)
            value = learn(compiled, tokens, model, twin, opts, run.rate(step))
            step += 1
            record = {"stage": name, "step": step, "tokens": step * run.tokens_per_step, "loss": round(value, 4)}
            record |= {"rate": round(run.rate(step - 1), 4), "seconds": round(time.monotonic() - start, 1)}
            late = time.monotonic() - saved > CHECKPOINT_SECONDS
            if late or step % run.checkpoint_every == 0 or step == run.steps:
                with torch.no_grad():
                    record["held_out"] = round(loss(torch.from_numpy(held_out).to(device)).item(), 4)
                state = {"shape": asdict(shape), "steps": run.steps, "decay_steps": run.decay_steps, "step": step}
                state |= {"model": model.state_dict(), "optimizers": [opt.state_dict() for opt in opts]}
                with atomic(path) as temporary:
                    torch.save(state, temporary)
                saved = time.monotonic()
            print(json.dumps(record), file=log, flush=True)
            bar.update()
            bar.set_postfix(loss=record["loss"])
    return model.eval()
