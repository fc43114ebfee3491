"""Checkpoints of a training that survive a kill: the model, its optimizers and the step."""

import time
from dataclasses import asdict
from pathlib import Path

import torch
from transformers import PreTrainedModel

from decoders.training.learning import Optimizers
from training.recipe import Run, Shape
from training.saving import atomic

MOST_SECONDS = 240  # between two checkpoints, however slow the steps are


def load_checkpoint(path: Path, shape: Shape, run: Run) -> dict:
    """Read the checkpoint at `path`.

    Raises:
        ValueError: if it is of another size, or if its steps can no longer be changed
    """
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    if checkpoint["shape"] != asdict(shape):
        raise ValueError(
            f"The checkpoint {path} is of another size ({checkpoint['shape']}, not "
            f"{asdict(shape)}); give its own --size, or another folder with --work."
        )
    steps, decay_steps, step = (checkpoint[key] for key in ("steps", "decay_steps", "step"))
    if (steps, decay_steps) != (run.steps, run.decay_steps) and step > min(
        steps - decay_steps, run.plateau_end
    ):
        raise ValueError(
            f"The checkpoint {path} at step {step} is past the plateau of {run.steps} or of its "
            f"own {steps} steps, so their "
            f"number can no longer be changed; give {steps} steps, {decay_steps} of them decay."
        )
    return checkpoint


class Checkpoints:
    """The checkpoint of one model's training, written again and again.

    Args:
        shape: size of the model
    """

    def __init__(self, path: Path, shape: Shape, run: Run):
        self.path, self.shape, self.run = path, shape, run
        self.saved = time.monotonic()

    def resume(self, model: PreTrainedModel, opts: Optimizers) -> int:
        """Load the checkpoint, if there is one, and return the step that it was written after."""
        step = 0
        if self.path.is_file():
            checkpoint = load_checkpoint(self.path, self.shape, self.run)
            step = checkpoint["step"]
            model.load_state_dict(checkpoint["model"])
            opts.load_state_dict(checkpoint["optimizers"])
        self.saved = time.monotonic()
        return step

    def due(self, step: int) -> bool:
        """Whether to save after this step: by its number, by the clock, or as the last one."""
        late = time.monotonic() - self.saved > MOST_SECONDS
        return late or step % self.run.checkpoint_every == 0 or step == self.run.steps

    def save(self, step: int, model: PreTrainedModel, opts: Optimizers) -> None:
        state = {
            "shape": asdict(self.shape),
            "steps": self.run.steps,
            "decay_steps": self.run.decay_steps,
            "step": step,
            "model": model.state_dict(),
            "optimizers": opts.state_dict(),
        }
        with atomic(self.path) as temporary:
            torch.save(state, temporary)
        self.saved = time.monotonic()
