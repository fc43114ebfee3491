"""`python -m workbench train-head`: a head for a target, and whether it pays on this machine."""

import argparse
import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from decoders import InputError, load_pair
from decoders.errors import quoted
from decoders.training.recipe import Recipe
from workbench.kinds.advice.study import Advice
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice
from workbench.studies import prompts
from workbench.studies.settings import Settings
from workbench.terminal import flags, show
from workbench.terminal.study import interruptible

USUAL = Recipe()
ADVISED = 4  # prompts
DESCRIPTION = """Train a head, a small draft that reads the target's hidden states, for a target.

The text files are plain text or .xz; a line <|endoftext|> separates documents, of which one in a
hundred is held out. Beside them the head learns from what the target itself writes. The same
command goes on after a kill. The result has the format of EAGLE-3, and `--models TARGET HEAD` of
every other command takes it."""
EXAMPLES = """examples:
  python -m workbench train-head assets/stories/target --text stories.txt --out my-head
  python -m workbench compare "Once upon a time" --models assets/stories/target my-head
"""


def register(commands: Any) -> None:
    command = flags.command(
        commands, "train-head", "train a head that drafts for a target", DESCRIPTION, EXAMPLES
    )
    command.set_defaults(command=run)
    add = command.add_argument
    add("target", metavar="TARGET", help="folder or hub id of the target")
    add("--text", nargs="+", metavar="FILE", required=True, help="text files to learn from")
    add("--out", metavar="FOLDER", required=True, help="where the head is saved")
    add("--work", metavar="FOLDER", help="for checkpoints and the target's own text (OUT/work)")
    for name, help in (
        ("steps", "of the training"),
        ("width", "of the head"),
        ("vocabulary", "how many tokens it proposes, the most frequent ones"),
        ("own-texts", "how many texts the target writes"),
        ("seed", "of weights and batches"),
    ):
        usual = getattr(USUAL, name.replace("-", "_"))
        add(f"--{name}", metavar="N", default=str(usual), help=f"{help} (default: {usual:,})")
    add(
        "--layers", nargs="+", metavar="L",
        help="the target's layers whose states it reads (default: three, spread evenly)",
    )  # fmt: skip
    add("--device", default="auto", help="cpu, cuda, … (default: auto)")
    add("--not-compiled", action="store_true", help="do without a C++ compiler")
    add("--no-advice", action="store_true", help="do not measure whether it pays")


def run(args: argparse.Namespace) -> int:
    # Imported late: other commands start without it.
    from decoders.training.heads import Training

    recipe, console = recipe_of(args), Console(highlight=False)
    out, files = Path(args.out), [Path(name) for name in args.text]
    if (out / "config.json").exists():
        raise InputError(f"{out} holds a model already; name another folder with --out.")
    home = next(p for p in (out, *out.absolute().parents) if p.exists())
    if not (home.is_dir() and os.access(home, os.W_OK)):  # told now, not after hours of training
        raise InputError(
            f"No head can be saved in {out}: {home} is not a folder that can be written to; name "
            "another with --out."
        )
    with Console(stderr=True).status("Loading the target and reading the text"):
        pair = load_pair(
            args.target, device=None if args.device == "auto" else args.device, dtype="float32"
        )
        training = Training(pair, files, Path(args.work or out / "work"), recipe)
    console.print(
        f"{len(training.ids):,} tokens to learn from, {len(training.held_out):,} held out; the "
        f"head reads the states of the layers {', '.join(map(str, training.spec.reads))}."
    )
    columns = (
        BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )  # fmt: skip
    with interruptible() as stop:
        with Bar(*columns, console=console) as bar:
            task = bar.add_task("the target's own texts", total=recipe.own_texts)
            for written in training.write_own():
                bar.update(task, completed=written)
                if stop.is_set():
                    console.print("Stopped; the same command goes on.")
                    return 130
        with Bar(*columns, console=console) as bar:
            task = bar.add_task("", total=recipe.steps, completed=training.step)
            for now in training.run():
                bar.update(task, completed=now.step, description=f"loss {now.loss:.2f}")
                if now.acceptance:
                    bar.console.print(f"step {now.step:,}: {places(now.acceptance)}")
                if stop.is_set():
                    training.checkpoint()
                    console.print("Stopped; the same command goes on from here.")
                    return 130
    training.save(out)
    console.print(f"{places(training.acceptance())}\nsaved in {out}")
    del training, pair  # the advisor loads the pair with its head
    if not args.no_advice:
        advise(args, console)
    return 0


def places(acceptance: tuple[float, ...]) -> str:
    """Held-out acceptance in words."""
    each = ", ".join(f"{a:.2f}" for a in acceptance)
    return f"held-out acceptance at temperature 1, by place of a draft: {each}"


def advise(args: argparse.Namespace, console: Console) -> None:
    """Say whether the head pays here, with four prompts of the stories."""
    settings = Settings.from_json({**Advice.usual, "decoders": ["best_first"]})
    # A head guesses worse at later places of a draft, so every length is measured, not predicted.
    advice = Advice(prompts.find("stories").first(ADVISED), settings, measure_all=True)
    device, choice = Device(PairKeeper()), PairChoice(args.target, args.out, args.device)
    with interruptible() as stop:
        found = show.follow(device.run(advice, choice, stop), console, Console(stderr=True))
    console.print(show.summary(found))


def recipe_of(args: argparse.Namespace) -> Recipe:
    """The recipe that the flags name.

    Raises:
        InputError: for a flag that is no whole number
    """

    def number(name: str, value: str) -> int:
        if not value.isdecimal():
            raise InputError(f"--{name} takes a whole number, not {quoted(value)}.")
        return int(value)

    return Recipe(
        width=number("width", args.width),
        inner=2 * number("width", args.width),
        vocabulary=number("vocabulary", args.vocabulary),
        reads=None
        if args.layers is None
        else tuple(sorted({number("layers", layer) for layer in args.layers})),
        steps=number("steps", args.steps),
        own_texts=number("own-texts", args.own_texts),
        seed=number("seed", args.seed),
        compiled=not args.not_compiled,
    )
