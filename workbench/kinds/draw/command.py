"""`python -m workbench draw`: one prompt, each decoder with many seeds."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text
from rich.tree import Tree

from decoders import InputError, ModelPair, catalog
from workbench.kinds import branch
from workbench.kinds.draw import START, Draw
from workbench.kinds.draw.view import again
from workbench.runs.draws import DEPTH, DrawNode, grouped, grown, texts_of
from workbench.runs.record import Result, Run
from workbench.runs.store import RunStore
from workbench.show import draws, looks
from workbench.studies import settings
from workbench.studies.text import counted
from workbench.terminal import flags, study
from workbench.terminal.show import grid, plain, remarks

DESCRIPTION = (
    "Continue one prompt with many seeds, show the texts as a tree with counts, and test whether "
    "their first tokens follow the large model's own distribution."
)
EXAMPLES = """examples:
  python -m workbench draw "Once upon a time"
  python -m workbench draw "Once upon a time" --draws 1000 --decoders multinomial typical \\
    --temperature 0.7 --json out.json
  python -m workbench draw --again 3f2a9c01d4e5
  python -m workbench draw --again 3f2a9c01d4e5 --draws 1000
"""
BRANCHES = 6  # of each token of a tree


def register(commands: Any) -> None:
    decoders = flags.listed("decoders", {name: method.summary for name, method in catalog.items()})
    command = flags.command(
        commands,
        "draw",
        "continue one prompt with many seeds, and compare the draws with the exact law",
        DESCRIPTION + decoders,
        EXAMPLES,
    )
    command.set_defaults(command=run)
    flags.add_prompt(command, nargs="?")
    command.add_argument(
        "--again", metavar="RUN",
        help="add draws with other seeds and the same settings to a past run; by default as many "
        "again",
    )  # fmt: skip
    flags.add(command, START, Draw)


def run(args: argparse.Namespace) -> int:
    own = flags.own(args, Draw)
    if args.again is not None:
        return _again(args, own)
    if args.prompt is None:
        raise InputError("Give the text to continue, or --again with the id of a past run.")
    return study.run(Draw(flags.prompt(args), flags.settings(args, START), **own), args)


def _again(args: argparse.Namespace, own: dict[str, Any]) -> int:
    """Add draws to a past run; raises InputError for flags that would change the distribution."""
    names = [
        "prompt",
        "decoders",
        "preset",
        "cache_mb",
        *(field.name for field in settings.shared()),
    ]
    if args.own or any(getattr(args, name) is not None for name in names):
        raise InputError(
            "--again takes the prompt and the settings from the run; combine it with --draws alone."
        )
    earlier = RunStore().get(args.again)

    def more(pair: ModelPair) -> Draw:
        branch.of_pair(pair, earlier)
        return again(earlier, own.get("draws"))

    return study.run(more, args, earlier)


def summary(run: Run) -> Group:
    return Group(
        *(tree(results, run) for results in grouped(run).values()),
        "",
        grid(draws.table(run)),
        *remarks(run),
        "",
        *(Text(plain(sentence)) for sentence in draws.sentences(run)),
    )


def tree(results: Sequence[Result], run: Run) -> Tree:
    """The first tokens of a decoder's draws with their counts, expected ones in brackets."""
    root = grown(sample.pieces for sample in texts_of(results))
    name, count = plain(results[0].decoder), f"  {counted(root.count, 'draw')}"
    shown = Tree(Text.assemble("\n", (name, "bold"), (count, "dim")))
    for error in (result.error for result in results if result.error is not None):
        shown.add(Text(plain(error), "red"))
    _grow(shown, root, (), root.count, {tuple(each.tokens): each.p for each in run.exact})
    return shown


def _grow(
    shown: Tree,
    node: DrawNode,
    path: tuple[int, ...],
    total: int,
    law: Mapping[tuple[int, ...], float],
) -> None:
    for child in node.following[:BRANCHES]:
        below = (*path, child.id)
        branch = shown.add(
            Text.assemble(
                f"{child.count}",
                (f" ({total * law[below]:.1f})" if below in law else "", "dim"),
                f"  {looks.visible(child.text) or '▫'}",
            )
        )
        if len(below) < DEPTH:
            _grow(branch, child, below, total, law)
    if rest := node.following[BRANCHES:]:
        shown.add(Text(f"{sum(child.count for child in rest)}  in {len(rest)} others", "dim"))
