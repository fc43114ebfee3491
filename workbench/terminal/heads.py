"""`python -m workbench train-head`: a head or a small model that drafts for a target."""

import argparse
import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from decoders import ModelPair, load_pair
from decoders.errors import refuse
from decoders.training.students import KINDS, Recipe
from workbench.terminal import flags
from workbench.terminal.show import interruptible

USUAL = Recipe()
DESCRIPTION = """Train what drafts for a target: a head, a small module that reads the target's
hidden states, or with --kind draft a small model.

Text files are plain text or .xz; a line <|endoftext|> separates documents. Files of questions have
one a line, or JSON lines with a "question". Beside them it learns from what the target itself
writes: answers to the questions, else texts that begin as the documents do. Acceptance is measured
on prompts that are held out, one in a hundred, or on those of --held-out; no text that shares eight
words in a row with one of these is learnt from. The same command goes on after a kill. `--models
TARGET OUT` of every other command takes the result; `batch --sizes 1` says whether it pays here."""
EXAMPLES = """examples:
  python -m workbench train-head assets/stories/target --text stories.txt --out my-head
  python -m workbench train-head smollm2 --questions mine.txt --start HEAD --out my-head
  python -m workbench batch --sizes 1 --models assets/stories/target my-head
"""
FILES = {
    "text": "text files to learn from",
    "questions": "files of questions that the target answers",
    "answers": "files of its answers: JSON lines [prompt ids, answer ids, temperature]",
    "held-out": "files of questions that acceptance is measured on",
}
NUMBERS = {
    "steps": "of the training",
    "width": "its width; 0 for the target's, whose embeddings a head then shares",
    "layers": "of a draft",
    "vocabulary": "how many tokens a head proposes, the most frequent ones",
    "rows": "texts of a step",
    "length": "tokens of a text",
    "own-texts": "how many texts the target writes",
    "seed": "of weights and batches",
}


def register(commands: Any) -> None:
    command = flags.command(
        commands, "train-head", "train a head or a model that drafts for a target", DESCRIPTION,
        EXAMPLES,
    )  # fmt: skip
    command.set_defaults(command=run)
    add = command.add_argument
    add("target", metavar="TARGET", help="folder or hub id of the target, or smollm2")
    for name, help in FILES.items():
        add(f"--{name}", nargs="+", metavar="FILE", default=[], help=help)
    add("--out", metavar="FOLDER", required=True, help="where it is saved")
    add("--work", metavar="FOLDER", help="for checkpoints and the target's own text (OUT/work)")
    add("--start", metavar="FOLDER", help="a head or draft of this trainer whose training goes on")
    add(
        "--kind", choices=KINDS, default=USUAL.kind, help=f"what is trained (default: {USUAL.kind})"
    )
    for name, help in NUMBERS.items():
        usual = getattr(USUAL, name.replace("-", "_"))
        add(f"--{name}", metavar="N", default=str(usual), help=f"{help} (default: {usual:,})")
    add(
        "--rate", type=float, default=1.0, metavar="X",
        help="a factor of the learning rates: below 1 for a training that goes on (default: 1)",
    )  # fmt: skip
    add("--device", default="auto", help="cpu, cuda, … (default: auto)")


def run(args: argparse.Namespace) -> int:
    # Imported late: other commands start without it.
    from decoders.training.learning import Training

    numbers: dict[str, Any] = flags.numbers(args, NUMBERS)
    rates = {name: getattr(USUAL, name) * args.rate for name in ("rate", "muon")}
    recipe = Recipe(kind=args.kind, **rates, **numbers)
    console, out = Console(highlight=False), Path(args.out)
    text, questions, answers, held_out = (
        [Path(file) for file in getattr(args, name.replace("-", "_"))] for name in FILES
    )
    home = next(p for p in (out, *out.absolute().parents) if p.exists())
    refuse(
        (
            (out / "config.json").exists(),
            f"{out} holds a model already; name another folder with --out.",
        ),
        (  # said now, not after hours of training
            not (home.is_dir() and os.access(home, os.W_OK)),
            f"No head can be saved in {out}: {home} is not a folder that can be written to; name "
            "another with --out.",
        ),
        (
            not args.text + args.questions + args.answers,
            "There is nothing to learn from; name files with --text or --questions.",
        ),
    )
    with Console(stderr=True).status("Loading the target and reading the text"):
        # A target of this package comes with a head, which reads nothing here.
        pair = load_pair(args.target, device=None if args.device == "auto" else args.device)
        pair = ModelPair(pair.target, None, pair.tokenizer)
        work, start = Path(args.work or out / "work"), args.start and Path(args.start)
        training = Training(pair, work, recipe, text, questions, answers, held_out, start)
    given = sum(len(text.ids) for text in training.given)
    console.print(
        f"{given:,} tokens to learn from beside {len(training.asked):,} texts that the target "
        f"writes, {len(training.probes)} prompts held out"
        + (f", {training.dropped} texts left out for their sake." if training.dropped else ".")
    )
    columns = (
        BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )  # fmt: skip
    with interruptible() as stop, Bar(*columns, console=console) as bar:
        task = bar.add_task("the target's own texts", total=len(training.asked))
        for written in training.write_own():
            bar.update(task, completed=written)
            if stop.is_set():
                console.print("Stopped; the same command goes on.")
                return 130
        task = bar.add_task("", total=recipe.steps, completed=training.step)
        for step, loss, acceptance in training.run():
            bar.update(task, completed=step, description=f"loss {loss:.2f}")
            if acceptance:
                bar.console.print(f"step {step:,}: {acceptance}")
            if stop.is_set():
                training.checkpoint()
                console.print("Stopped; the same command goes on from here.")
                return 130
    training.student.save(out)
    console.print(f"saved in {out}")
    return 0
