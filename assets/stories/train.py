"""From text to the saved pair in one command: tokenizer, tokens, target, the target's own text, draft, save.

    python assets/stories/train.py --size interim --data ../shared/data

Run the same command again after a kill: every stage resumes. The losses are in <work>/losses.jsonl.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from corpus import Mixture, prepare
from fit import distillation_loss, fit, next_token_loss
from own_text import write
from recipe import Recipe, Run, sizes
from saving import atomic
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

HERE = Path(__file__).parent


def save_pair(target: PreTrainedModel, draft: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, out: Path) -> None:
    """`out/target` and `out/draft`, bfloat16, each with the tokenizer and no file of 10 MB; both whole or neither."""
    with atomic(out / "draft") as draft_folder, atomic(out / "target") as target_folder:
        for model, folder in ((draft, draft_folder), (target, target_folder)):
            model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="9MB")
            tokenizer.save_pretrained(folder)


def train(recipe: Recipe, data: Path, work: Path, out: Path, device: str) -> None:
    """Trains and saves the pair. ValueError for data or checkpoints that do not fit, OSError for what cannot be written."""
    work.mkdir(parents=True, exist_ok=True)
    prepare(data, work, recipe.corpus)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(work / "tokenizer")
    mixture = Mixture.load(work, recipe.corpus.weights)
    held_out = Mixture.load(work, recipe.corpus.weights, "held_out")
    probe = held_out.batch(np.random.default_rng(recipe.seed), 64, recipe.target_run.short)
    torch.manual_seed(recipe.seed)
    target = recipe.target.build(len(tokenizer), recipe.context)
    draft = recipe.draft.build(len(tokenizer), recipe.context)
    common = {"work": work, "seed": recipe.seed, "device": device}

    def story_batch(rng: np.random.Generator, step: int, rows: int, length: int) -> np.ndarray:
        return mixture.batch(rng, rows, length)

    fit(
        target, next_token_loss, story_batch, probe, name="target", shape=recipe.target, run=recipe.target_run, **common
    )
    target.requires_grad_(False)
    own = write(target, mixture, work, recipe, device)

    def draft_batch(rng: np.random.Generator, step: int, rows: int, length: int) -> np.ndarray:
        source = own if step >= recipe.own_from * recipe.draft_run.steps else mixture
        return source.batch(rng, rows, length)

    loss = partial(distillation_loss, target)
    fit(draft, loss, draft_batch, probe, name="draft", shape=recipe.draft, run=recipe.draft_run, **common)
    save_pair(target, draft, tokenizer, out)


def with_steps(run: Run, steps: int | None) -> Run:
    return replace(run, steps=steps) if steps else run


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=sizes(), default="interim", help="the one dial")
    parser.add_argument("--data", type=Path, default=HERE.parents[2] / "shared" / "data", help="folder of *.txt.xz")
    parser.add_argument("--work", type=Path, help="folder for tokens, checkpoints, log (~/.cache/llama-stories/<size>)")
    parser.add_argument("--out", type=Path, default=HERE, help="where target/ and draft/ are saved")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--target-steps", type=int, help="more or fewer steps than the size says")
    parser.add_argument("--draft-steps", type=int)
    args = parser.parse_args(arguments)
    recipe = sizes()[args.size]
    recipe = replace(
        recipe,
        target_run=with_steps(recipe.target_run, args.target_steps),
        draft_run=with_steps(recipe.draft_run, args.draft_steps),
    )
    work = args.work or Path.home() / ".cache" / "llama-stories" / args.size
    try:
        train(recipe, args.data, work, args.out, args.device)
    except (ValueError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
