"""From text to the saved pair in one command.

Tokenizer, tokens, a small target, the target that grows from it, its own text, draft, save:

    python -m training.train --size full --data ../shared/data

Run the same command again after a kill: every stage resumes. The losses are in <work>/losses.jsonl.
To train a saved target on:

    python -m training.train --start-from assets/stories/target --seed 1"""

import argparse
import ctypes
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerFast

import decoders
from decoders.training.learning import Training
from training import DATA, SHIPPED
from training.corpus import Mixture, prepare
from training.fit import Batches, fit, next_token_loss
from training.recipe import Recipe, Run, sizes
from training.saving import atomic
from training.weights import export, first_weights, save_model, save_pair, take_tokenizer


def in_turn(before: Mixture, after: Mixture, turn: float) -> Batches:
    """Batches of one mixture before the step `turn`, and of another from it on."""

    def batch(rng: np.random.Generator, step: int, rows: int, length: int) -> np.ndarray:
        return (before if step < turn else after).batch(rng, rows, length)

    return batch


def train(
    recipe: Recipe,
    data: Path,
    work: Path,
    out: Path,
    device: str,
    start_from: Path | None = None,
    draft_from: Path | None = None,
) -> None:
    """Train and save the pair, from the start or from a saved target or draft.

    Raises:
        ValueError: for data or checkpoints that do not fit
        OSError: if a file cannot be written
    """
    work.mkdir(parents=True, exist_ok=True)
    if start_from is not None:
        take_tokenizer(start_from, work)
    prepare(data, work, recipe.corpus)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(work / "tokenizer")
    first = Mixture.load(work, recipe.corpus.weights)
    mixture = Mixture.load(work, recipe.last_weights or recipe.corpus.weights)
    held_out = Mixture.load(work, recipe.last_weights or recipe.corpus.weights, "held_out")
    probe = held_out.batch(np.random.default_rng(recipe.seed), 64, recipe.target_run.short)
    torch.manual_seed(recipe.seed)
    stage = partial(fit, held_out=probe, work=work, seed=recipe.seed, device=device)
    if start_from is None and recipe.small_run is not None:
        shape, run, start_from = recipe.target.half, recipe.small_run, work / "small"
        small = shape.build(len(tokenizer), recipe.context)
        batches = in_turn(first, mixture, run.plateau_end)
        stage(small, next_token_loss, batches, name="small", shape=shape, run=run)
        save_model(small, tokenizer, start_from)
    target = first_weights(recipe.target, len(tokenizer), recipe.context, start_from)
    batches = in_turn(first, mixture, recipe.target_run.plateau_end)
    stage(
        target, next_token_loss, batches, name="target", shape=recipe.target, run=recipe.target_run
    )
    save_model(target, tokenizer, work / "teacher")
    draft = train_draft(mixture, work, recipe, device, draft_from)
    save_pair(target, draft, tokenizer, out)


def train_draft(
    mixture: Mixture, work: Path, recipe: Recipe, device: str, start: Path | None
) -> PreTrainedModel:
    """Train the draft for the target in `work/teacher`: on texts, and on as many of its own."""
    file, settings = work / "texts.jsonl", replace(recipe.draft, seed=recipe.seed)
    if not file.is_file():
        rng = np.random.default_rng(recipe.seed)
        rows = mixture.batch(rng, settings.own_texts, settings.length - 1).tolist()
        with atomic(file) as part:
            part.write_text("".join(json.dumps([[], row, None]) + "\n" for row in rows))
    pair = decoders.load_pair(work / "teacher", None, device=device)
    training = Training(pair, work / "draft", settings, answers=[file], start=start)
    for _ in tqdm(training.write_own(), desc="own texts"):
        pass
    for _ in tqdm(training.run(), desc="draft", total=settings.steps, initial=training.step):
        pass
    return training.student.module.eval()


def with_steps(
    run: Run, steps: int | None, decay_steps: int | None = None, whole_steps: int | None = None
) -> Run:
    return replace(
        run,
        steps=run.steps if steps is None else steps,
        decay_steps=decay_steps or run.decay_steps,
        whole_steps=run.whole_steps if whole_steps is None else whole_steps,
    )


def at_rate(run: Run, times: float) -> Run:
    """The same run at other rates: weights that are trained on forget less at a lower rate."""
    return replace(run, muon_rate=times * run.muon_rate, adam_rate=times * run.adam_rate)


def keep_freed_memory() -> None:
    """Ask glibc to use freed memory again.

    Otherwise each large tensor is mapped anew and its pages are zeroed."""
    m_trim_threshold, m_mmap_max = -1, -4
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(m_mmap_max, 0)
        libc.mallopt(m_trim_threshold, 2**31 - 1)


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--size", choices=sizes(), default="full", help="the one dial")
    add("--data", type=Path, default=DATA, help="folder of *.txt.xz")
    add(
        "--work",
        type=Path,
        help="folder for tokens, checkpoints, log (~/.cache/llama-stories/<size>)",
    )
    add("--out", type=Path, default=SHIPPED, help="where target/ and draft/ are saved")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--start-from", type=Path, help="a saved target whose weights and tokenizer are taken")
    add("--seed", type=int, help="another one draws other text, as a run from saved weights should")
    add(
        "--export",
        type=Path,
        help="only save the target of the last checkpoint there, for --start-from",
    )
    add(
        "--target-steps",
        type=int,
        help=(
            "more or fewer steps than the size says; 0 takes a saved target as it is, for a new "
            "draft"
        ),
    )
    add("--target-decay", type=int, help="the number of last steps that are decay")
    add("--target-whole", type=int, help="the number of last steps whose rows have all the context")
    add("--target-rate", type=float, default=1.0, help="a factor of the target's learning rates")
    add(
        "--draft-from",
        type=Path,
        help="a saved draft whose weights are taken, with the same tokenizer",
    )
    add("--draft-steps", type=int)
    add("--draft-rate", type=float, default=1.0, help="a factor of the draft's learning rates")
    return parser


def chosen(args: argparse.Namespace) -> Recipe:
    """The recipe of a size, with the changes that the command line asks for."""
    recipe = sizes()[args.size]
    return replace(
        recipe,
        seed=recipe.seed if args.seed is None else args.seed,
        target_run=at_rate(
            with_steps(recipe.target_run, args.target_steps, args.target_decay, args.target_whole),
            args.target_rate,
        ),
        draft=replace(
            recipe.draft,
            steps=recipe.draft.steps if args.draft_steps is None else args.draft_steps,
            muon=recipe.draft.muon * args.draft_rate,
            rate=recipe.draft.rate * args.draft_rate,
        ),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    args = options().parse_args(arguments)
    keep_freed_memory()
    recipe = chosen(args)
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
