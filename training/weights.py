"""Where a training's weights come from and where they go: fresh, saved, grown, exported."""

import shutil
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from training.checkpoints import load_checkpoint
from training.fit import in_half
from training.grow import grow
from training.recipe import Recipe, Shape
from training.saving import atomic


def save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Save in bfloat16, with the tokenizer and with files below 10 MB."""
    in_half(model).save_pretrained(folder, max_shard_size="9MB")
    tokenizer.save_pretrained(folder)


def save_pair(
    target: PreTrainedModel, draft: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, out: Path
) -> None:
    """Save `out/target` and `out/draft`; both whole or neither."""
    with atomic(out / "draft") as draft_folder, atomic(out / "target") as target_folder:
        save_model(draft, tokenizer, draft_folder)
        save_model(target, tokenizer, target_folder)


def export(recipe: Recipe, work: Path, folder: Path) -> None:
    """Save the target of the last checkpoint under `work`, as `--start-from` takes it.

    Raises:
        ValueError: if there is no checkpoint
    """
    if not (work / "target.pt").is_file():
        raise ValueError(
            f"{work} holds no target.pt to export; give the folder of a training with --work."
        )
    tokenizer = PreTrainedTokenizerFast.from_pretrained(work / "tokenizer")
    target = recipe.target.build(len(tokenizer), recipe.context)
    target.load_state_dict(
        load_checkpoint(work / "target.pt", recipe.target, recipe.target_run)["model"]
    )
    with atomic(folder) as part:
        save_model(target, tokenizer, part)


def take_tokenizer(folder: Path, work: Path) -> None:
    """Copy a saved model's tokenizer to where `prepare` looks for one: ids keep their meaning."""
    if not (work / "tokenizer").is_dir():
        with atomic(work / "tokenizer") as copy:
            copy.mkdir()
            for path in folder.glob("tokenizer*.json"):
                shutil.copy(path, copy)


def first_weights(
    shape: Shape, vocab_size: int, context: int, start_from: Path | None
) -> PreTrainedModel:
    """Fresh weights, or those of a saved model in the folder `start_from`.

    The saved model may have half the width, or fewer layers: the further ones add nothing at first,
    for their output projections begin at zero, so training goes on where it was.

    Raises:
        ValueError: if the saved model is of another size
    """
    fresh = shape.build(vocab_size, context)
    if start_from is None:
        return fresh
    saved = AutoModelForCausalLM.from_pretrained(start_from, dtype=torch.float32)
    if 2 * saved.config.hidden_size == shape.width:
        saved = grow(saved)
    try:
        if strange := fresh.load_state_dict(saved.state_dict(), strict=False).unexpected_keys:
            raise RuntimeError(f"unexpected weights: {strange}")
    except RuntimeError as error:
        raise ValueError(
            f"The weights in {start_from} are of another size; give their own with --size."
        ) from error
    for layer in fresh.model.layers[saved.config.num_hidden_layers :]:
        for projection in (layer.self_attn.o_proj, layer.mlp.down_proj):
            torch.nn.init.zeros_(projection.weight)
    return fresh
