"""The training loop of the target.

Passes are in bfloat16 where the machine multiplies it, weights in float32; the optimisers are Muon
and AdamW."""

import json
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm
from transformers import PreTrainedModel

from decoders.devices import device_of
from decoders.training.learning import Optimizers
from training.attention import NAME as BLOCK_ATTENTION
from training.checkpoints import Checkpoints
from training.recipe import Run, Shape

# tokens of one forward and backward pass: they suit the caches and the memory
MICRO_BATCH = {"cpu": 4096, "cuda": 16384}
# (rng, step, rows, length) -> (rows, length + 1) ids
Batches = Callable[[np.random.Generator, int, int, int], np.ndarray]


def next_token_loss(model: PreTrainedModel, tokens: Tensor) -> Tensor:
    """Mean cross-entropy in nats of tokens (B, T + 1), each given those before it."""
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def optimizers(model: PreTrainedModel, run: Run) -> Optimizers:
    """Muon for the matrices inside the layers, AdamW for embedding and norms."""
    embedding = model.get_input_embeddings().weight
    matrices = [p for p in model.parameters() if p.ndim == 2 and p is not embedding]
    rest = [p for p in model.parameters() if p.ndim != 2]
    adam = [{"params": [embedding], "peak": run.adam_rate}, {"params": rest, "peak": run.adam_rate}]
    return Optimizers([{"params": matrices, "peak": run.muon_rate}], adam, run.weight_decay)


def in_half(model: PreTrainedModel, dtype: torch.dtype = torch.bfloat16) -> PreTrainedModel:
    """A copy of `model` with bfloat16 weights, or others.

    Its buffers stay float32: rounded frequencies would turn late positions by whole radians."""
    copy = deepcopy(model)
    for parameter in copy.parameters():
        parameter.data = parameter.data.to(dtype)
    return copy


def half_twin(model: PreTrainedModel) -> PreTrainedModel:
    """The copy that makes the passes of training, in the precision of `Device.training_dtype`.

    On a CPU its attention is that of `block_attention`."""
    twin = in_half(model, device_of(model.device).training_dtype)
    if twin.device.type == "cpu":
        twin.set_attn_implementation(BLOCK_ATTENTION)
    return twin


def learn(
    loss: Callable[[Tensor], Tensor],
    tokens: Tensor,
    model: PreTrainedModel,
    twin: PreTrainedModel,
    opts: Optimizers,
    rate: float,
) -> float:
    """Make one step on tokens (B, T + 1) at `rate` times the peak rates and return its loss.

    The passes are those of the `twin`. The gradients of its weights add up in the float32 weights
    of `model`, and these are copied back."""
    weights, halves, value = list(model.parameters()), list(twin.parameters()), 0.0
    for part in tokens.split(max(MICRO_BATCH[tokens.device.type] // (tokens.shape[1] - 1), 1)):
        share = loss(part) * (len(part) / len(tokens))
        share.backward()
        value += share.item()
        for half, weight in zip(halves, weights, strict=True):
            weight.grad = half.grad.float() if weight.grad is None else weight.grad.add_(half.grad)
            half.grad = None
    opts.step(rate)
    with torch.no_grad():
        torch._foreach_copy_(halves, weights)
    return value


def draw(batches: Batches, seed: int, step: int, rows: int, length: int) -> Tensor:
    """The batch of a step, (rows, length + 1) ids, at least one row.

    Seed and step alone decide it, so a resumed run sees the batches of an uninterrupted one."""
    rng = np.random.default_rng([seed, step])
    return torch.from_numpy(batches(rng, step, max(rows, 1), length))


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
    """Train `model` in place, resuming from `work/<name>.pt`.

    Losses go to `work/losses.jsonl`, in nats a token, of the batch and of `held_out`, (B, T + 1)
    ids."""
    checkpoints = Checkpoints(work / f"{name}.pt", shape, run)
    model.to(device).train()
    opts = optimizers(model, run)
    step = checkpoints.resume(model, opts)
    twin = half_twin(model)

    def loss(tokens: Tensor) -> Tensor:
        return loss_of(twin, tokens)

    compiled = torch.compile(loss, dynamic=False) if run.compile else loss
    start = time.monotonic()
    with (
        open(work / "losses.jsonl", "a") as log,
        tqdm(total=run.steps, initial=step, desc=name) as bar,
    ):
        while step < run.steps:
            length = run.length(step, model.config.max_position_embeddings)
            tokens = draw(batches, seed, step, run.tokens_per_step // length, length).to(device)
            value = learn(compiled, tokens, model, twin, opts, run.rate(step))
            step += 1
            record = {"stage": name, "step": step, "tokens": step * run.tokens_per_step}
            record |= {"loss": round(value, 4), "rate": round(run.rate(step - 1), 4)}
            record["seconds"] = round(time.monotonic() - start, 1)
            if checkpoints.due(step):
                with torch.no_grad():
                    probe = loss(torch.from_numpy(held_out).to(device))
                record["held_out"] = round(probe.item(), 4)
                checkpoints.save(step, model, opts)
            print(json.dumps(record), file=log, flush=True)
            bar.update()
            bar.set_postfix(loss=record["loss"])
    return model.eval()
