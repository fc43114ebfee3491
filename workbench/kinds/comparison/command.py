"""`python -m workbench compare`: one prompt, several decoders."""

import argparse
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rich.console import Group
from rich.text import Text

from decoders import catalog
from workbench.kinds.comparison import START, Comparison
from workbench.runs.figures import rows
from workbench.runs.record import Result, Run
from workbench.show import laws, looks, panel, tables
from workbench.studies.settings import Served, known, method_of
from workbench.terminal import flags, study
from workbench.terminal.show import coloured, grid, plain, remarks

DESCRIPTION = (
    "Decode one prompt with several decoders, one after another so that each is timed alone."
)
EXAMPLES = """examples:
  python -m workbench compare "Once upon a time"
  python -m workbench compare "Once upon a time" --decoders greedy mtad --temperature 0 \\
    --json out.json
  python -m workbench compare "Once upon a time" --decoders dsbd --set dsbd.draft_beams=6 \\
    --repeats 5 --csv out.csv
  python -m workbench compare "The capital of France is" --models "SmolLM2-1.7B + SmolLM2-135M"
  python -m workbench compare "Once upon a time" --engines http://127.0.0.1:8000
  python -m workbench compare - < prompt.txt
  python -m workbench compare '[{"role": "user", "content": "Who are you?"}]' --models MODEL
"""


def register(commands: Any) -> None:
    decoders = flags.listed("decoders", {name: method.summary for name, method in catalog.items()})
    command = flags.command(
        commands, "compare", "decode one prompt with several decoders", DESCRIPTION + decoders,
        EXAMPLES,
    )  # fmt: skip
    command.set_defaults(command=run)
    flags.add_prompt(command)
    flags.add_engines(command)
    flags.add(command, START, Comparison)


def run(args: argparse.Namespace) -> int:
    settings = flags.settings(args, START)
    servers = tuple(map(Served, flags.engines(args)))
    settings = replace(settings, methods=(*settings.methods, *servers))
    return study.run(Comparison(flags.prompt(args), settings), args)


def legend(results: Iterable[Result]) -> Text:
    occurring = {token.fate for result in results for token in result.alone.tokens}
    return Text("   ").join(
        Text(style.label, style.terminal)
        for fate, style in looks.FATES.items()
        if fate in occurring
    )


def text(result: Result) -> Group:
    """The text of one decoder of a comparison under its name, with its badge or error."""
    summary = method_of(result.decoder).summary if known(result.decoder) else ""
    parts = [
        Text.assemble("\n", (plain(result.decoder), "bold"), (f"  {summary}", "dim")),
        coloured(result.alone.tokens),
    ]
    if result.server is not None:
        parts.append(Text(plain(laws.served(result.server).chip), "dim"))
    if result.agreement is not None:
        parts.append(Text(plain(panel.badge(result.agreement)["text"]), "dim"))
    if result.agreement is not None and result.agreement.says and result.agreement.differing:
        parts.append(Text(plain(result.agreement.says), "dim"))
    if result.error is not None:
        parts.append(Text(plain(result.error), "red"))
    return Group(*parts)


def summary(run: Run) -> Group:
    # A row for each figure, a column for each decoder, which has the name that flags use.
    table, decoders = tables.figures(run), [row.decoder for row in rows(run.results)]
    columns = [[name, *cells[1:]] for name, cells in zip(decoders, table.rows, strict=True)]
    heads, *lines = map(list, zip(table.heads, *columns, strict=True))
    figures = grid(tables.Table(heads, lines))
    return Group("", "", legend(run.results), "", figures, *remarks(run))
