"""From text to the saved pair in one command: tokenizer, tokens, target, the target's own text, draft, save.

    python assets/stories/train.py --size interim --data ../shared/data

Run the same command again after a kill: every stage resumes. The losses are in <work>/losses.jsonl. To train a saved target on:

    python assets/stories/train.py --start-from assets/stories/target --seed 1
"""

import argparse
import ctypes
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from corpus import Mixture, prepare
from fit import distillation_loss, fit, half_twin, in_half, load_checkpoint, next_token_loss
from own_text import write
from recipe import Recipe, Run, Shape, sizes
from saving import atomic
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

HERE = Path(__file__).parent


def save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """In bfloat16, with the tokenizer and no file of 10 MB."""
    in_half(model).save_pretrained(folder, max_shard_size="9MB")
    tokenizer.save_pretrained(folder)


def save_pair(target: PreTrainedModel, draft: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, out: Path) -> None:
    """`out/target` and `out/draft`; both whole or neither."""
    with atomic(out / "draft") as draft_folder, atomic(out / "target") as target_folder:
        save_model(draft, tokenizer, draft_folder)
        save_model(target, tokenizer, target_folder)


def export(recipe: Recipe, work: Path, folder: Path) -> None:
    """Saves the target of the last checkpoint under `work`, as `--start-from` takes it; ValueError if there is none."""
    if not (work / "target.pt").is_file():
        raise ValueError(f"{work} holds no target.pt to export; give the folder of a training with --work.")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(work / "tokenizer")
    target = recipe.target.build(len(tokenizer), recipe.context)
    target.load_state_dict(load_checkpoint(work / "target.pt", recipe.target, recipe.target_run)["model"])
    with atomic(folder) as part:
        save_model(target, tokenizer, part)


def take_tokenizer(folder: Path, work: Path) -> None:
    """Copies the tokenizer of a saved model to where `prepare` looks for one, so that ids keep their meaning."""
    if not (work / "tokenizer").is_dir():
        with atomic(work / "tokenizer") as copy:
            copy.mkdir()
            for path in folder.glob("tokenizer*.json"):
                shutil.copy(path, copy)


def first_weights(shape: Shape, vocab_size: int, context: int, start_from: Path | None) -> PreTrainedModel:
    """Fresh weights, or those of a saved model; ValueError if that one is of another size. It may have fewer layers: the further
    ones add nothing at first, for their output projections begin at zero, so training goes on where it was."""
    fresh = shape.build(vocab_size, context)
    if start_from is None:
        return fresh
    saved = AutoModelForCausalLM.from_pretrained(start_from, dtype=torch.float32)
    try:
        if strange := fresh.load_state_dict(saved.state_dict(), strict=False).unexpected_keys:
            raise RuntimeError(f"unexpected weights: {strange}")
    except RuntimeError as error:
        raise ValueError(f"The weights in {start_from} are of another size; give their own with --size.") from error
    for layer in fresh.model.layers[saved.config.num_hidden_layers :]:
        for projection in (layer.self_attn.o_proj, layer.mlp.down_proj):
            torch.nn.init.zeros_(projection.weight)
    return fresh


def train(
    recipe: Recipe,
    data: Path,
    work: Path,
    out: Path,
    device: str,
    start_from: Path | None = None,
    draft_from: Path | None = None,
) -> None:
    """Trains and saves the pair. ValueError for data or checkpoints that do not fit, OSError for what cannot be written."""
    work.mkdir(parents=True, exist_ok=True)
    if start_from is not None:
        take_tokenizer(start_from, work)
    prepare(data, work, recipe.corpus)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(work / "tokenizer")
    mixture = Mixture.load(work, recipe.corpus.weights)
    held_out = Mixture.load(work, recipe.corpus.weights, "held_out")
    probe = held_out.batch(np.random.default_rng(recipe.seed), 64, recipe.target_run.short)
    torch.manual_seed(recipe.seed)
    target = first_weights(recipe.target, len(tokenizer), recipe.context, start_from)
    draft = first_weights(recipe.draft, len(tokenizer), recipe.context, draft_from)
    common = {"work": work, "seed": recipe.seed, "device": device}

    def story_batch(rng: np.random.Generator, step: int, rows: int, length: int) -> np.ndarray:
        return mixture.batch(rng, rows, length)

    fit(
        target, next_token_loss, story_batch, probe, name="target", shape=recipe.target, run=recipe.target_run, **common
    )
    teacher = half_twin(target).requires_grad_(False)
    save_model(target, tokenizer, work / "teacher")
    own = write(mixture, work, recipe, device)

    def draft_batch(rng: np.random.Generator, step: int, rows: int, length: int) -> np.ndarray:
        source = own if step >= recipe.own_from * recipe.draft_run.steps else mixture
        return source.batch(rng, rows, length)

    loss = partial(distillation_loss, teacher)
    fit(draft, loss, draft_batch, probe, name="draft", shape=recipe.draft, run=recipe.draft_run, **common)
    save_pair(target, draft, tokenizer, out)


def with_steps(run: Run, steps: int | None, decay_steps: int | None = None) -> Run:
    return replace(run, steps=run.steps if steps is None else steps, decay_steps=decay_steps or run.decay_steps)


def at_rate(run: Run, times: float) -> Run:
    """Weights that are trained on forget less at a lower rate than the first one."""
    return replace(run, muon_rate=times * run.muon_rate, adam_rate=times * run.adam_rate)


def keep_freed_memory() -> None:
    """Asks glibc to use freed memory again: else each large tensor is mapped anew and its pages are zeroed."""
    m_trim_threshold, m_mmap_max = -1, -4
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(m_mmap_max, 0)
        libc.mallopt(m_trim_threshold, 2**31 - 1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=sizes(), default="interim", help="the one dial")
    parser.add_argument("--data", type=Path, default=HERE.parents[2] / "shared" / "data", help="folder of *.txt.xz")
    parser.add_argument("--work", type=Path, help="folder for tokens, checkpoints, log (~/.cache/llama-stories/<size>)")
    parser.add_argument("--out", type=Path, default=HERE, help="where target/ and draft/ are saved")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--start-from", type=Path, help="a saved target whose weights and tokenizer are taken")
    parser.add_argument("--seed", type=int, help="another one draws other text, as a run from saved weights should")
    parser.add_argument(
        "--export", type=Path, help="only save the target of the last checkpoint there, for --start-from"
    )
    parser.add_argument(
        "--target-steps",
        type=int,
        help="more or fewer steps than the size says; 0 takes a saved target as it is, for a new draft",
    )
    parser.add_argument("--target-decay", type=int, help="so many of the last steps are decay")
    parser.add_argument("--target-rate", type=float, default=1.0, help="the target's learning rates, times so much")
    parser.add_argument(
        "--draft-from", type=Path, help="a saved draft whose weights are taken, with the same tokenizer"
    )
    parser.add_argument("--draft-steps", type=int)
    parser.add_argument("--draft-rate", type=float, default=1.0, help="the draft's learning rates, times so much")
    args = parser.parse_args(arguments)
    keep_freed_memory()
    recipe = sizes()[args.size]
    recipe = replace(
        recipe,
        seed=recipe.seed if args.seed is None else args.seed,
        target_run=at_rate(with_steps(recipe.target_run, args.target_steps, args.target_decay), args.target_rate),
        draft_run=at_rate(with_steps(recipe.draft_run, args.draft_steps), args.draft_rate),
    )
    work = args.work or Path.home() / ".cache" / "llama-stories" / args.size
    try:
        if args.export:
            export(recipe, work, args.export)
            return
        train(recipe, args.data, work, args.out, args.device, args.start_from, args.draft_from)
    except (ValueError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
