"""Commands whose exit status is a verdict: 0 for yes, 1 for no, 2 if nothing can be said.

`prove` says whether the function in a file verifies drafts without loss; it runs the file, so it
belongs to the terminal: nothing that a visitor of the page sends loads code. `canary` says whether
a served model keeps its law.
"""

import argparse
import dataclasses
import json
import runpy
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from decoders.divergence import DTYPES
from decoders.errors import InputError, first_line, quoted
from decoders.testing import CHILDREN, TooManyWays, prove
from workbench.engines.addresses import LISTED, named
from workbench.engines.canary import LEVEL, SOUGHT, CanaryPlan, CanaryReport, watch
from workbench.engines.client import Client, connect
from workbench.show.tables import Table
from workbench.terminal import flags, show

OF_RULES = """Say by enumeration whether a function that verifies drafts is lossless.

FILE is Python code with a function
  verify(p, q, tokens, source)           for chains: returns how many tokens it keeps and the next
  verify(p, q, tokens, parents, source)  for trees: returns the last row that it keeps and the next
All its chance comes from source.accept(probability) and source.draw(weights).

The exit status is 0 if it is lossless, 1 if it is not, 2 if nothing can be said."""
PROVED = """examples:
  python -m workbench prove my_rule.py
  python -m workbench prove my_tree_rule.py --function verify_tree --children without-replacement
"""


DESCRIPTION = f"""Test a served model: does it draw from the distribution of the model, and
is its greedy text the model's?

ENGINE is a URL, or a name from {LISTED}. The model is loaded here, too. The server must
tell token ids, as vLLM, SGLang and llama.cpp do.

The exit status is 0 if it does, 1 if it does not, 2 if nothing can be said."""
EXAMPLES = """examples:
  python -m workbench canary http://127.0.0.1:8000
  python -m workbench canary fast --models Qwen/Qwen3-8B Qwen/Qwen3-0.6B --served-in bfloat16
"""
USUAL = CanaryPlan()
NUMBERS = {
    "draws": "texts drawn",
    "tokens": "tokens of each",
    "seed": "seed of the first draw",
}
VERDICTS = {
    "unlike": "Unlike the model: {draws:,} draws contradict its distribution.",
    "fault": "A fault: the draws fit the model, but a greedy text is not its own.",
    "like": f"Like the model, to within a total variation of {SOUGHT}: {{draws:,}} draws fit its "
    "distribution, and would not have fitted the controls.",
    "cannot tell": "Cannot tell: {draws:,} draws are too few to find the controls; draw more.",
}


def register(commands: Any) -> None:
    command = flags.command(
        commands, "prove", "whether a verification rule is lossless", OF_RULES, PROVED
    )
    command.set_defaults(command=prove_file)
    command.add_argument("file", metavar="FILE", help="a file with Python code, which is run")
    command.add_argument(
        "--function", default="verify", metavar="NAME", help="the function (default: verify)"
    )
    command.add_argument(
        "--children",
        choices=list(CHILDREN),
        default="with-replacement",
        help="how draft tokens come from q (default: with-replacement)",
    )

    command = flags.command(
        commands,
        "canary",
        "whether a served model draws from its own distribution",
        DESCRIPTION,
        EXAMPLES,
    )
    command.set_defaults(command=run)
    add = command.add_argument
    add("engine", metavar="ENGINE", help="name or URL of the server")
    add("--model", metavar="NAME", help="the model, as the server calls it (default: its first)")
    add("--key", metavar="VARIABLE", help="environment variable with the key of a URL")
    add("--kind", metavar="KIND", help="vllm, sglang, llama.cpp, … (default: found out)")
    add(
        "--prefix", action="append", metavar="TEXT",
        help="a text to continue; may be given several times (default: four)",
    )  # fmt: skip
    for name, help in NUMBERS.items():
        usual = getattr(USUAL, name)
        add(f"--{name}", metavar="N", default=str(usual), help=f"{help} (default: {usual:,})")
    add(
        "--served-in", choices=DTYPES, default="auto",
        help="number type of the server's model (default: the one here)",
    )  # fmt: skip
    add("--json", metavar="FILE", type=Path, help="also write the report as JSON")
    flags.add_models(command)


def prove_file(args: argparse.Namespace) -> int:
    try:
        Path(args.file).read_bytes()  # what the code itself cannot read is another matter
    except OSError as error:
        raise InputError(f"{args.file} cannot be read: {error.strerror}.") from None
    try:
        names = runpy.run_path(args.file)
    # A reader's file can fail in any way.
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{args.file} failed: {type(error).__name__}: {first_line(error)}"
        ) from error
    if args.function not in names:
        raise InputError(
            f"{args.file} has no function {quoted(args.function)}; name one with --function."
        )
    try:
        proof = prove(names[args.function], sample=CHILDREN[args.children])
    except TooManyWays as error:
        raise InputError(f"The function draws too often: {error}.") from None
    print(proof)
    return int(not proof.lossless)


def run(args: argparse.Namespace) -> int:
    files, prefixes = [args.json] if args.json else [], tuple(args.prefix or USUAL.prefixes)
    what = CanaryPlan(prefixes, dtype=args.served_in, **flags.numbers(args, NUMBERS))
    flags.writable(files)
    said = {name: value for name in ("model", "key", "kind") if (value := getattr(args, name))}
    client = connect(dataclasses.replace(named(args.engine), **said))
    console, progress = Console(highlight=False), Console(stderr=True)
    with closing(client.wire), show.interruptible() as stop:
        console.print(Text(show.printable(server(client))), soft_wrap=True)
        device, choice = show.loaded(args)
        pair = device.pair(choice)
        with progress.status("") as status:

            def doing(words: str, done: int, total: int) -> None:
                status.update(f"{words}: {done:,} of {total:,}")

            report = device.call(watch, client, pair, what, doing, stop.is_set)
    console.print(show.grid(table(report)), "", sep="\n")
    for words in sentences(report):
        console.print(Text(show.printable(words)), soft_wrap=True)
    for path in files:
        flags.write(path, json.dumps(report.to_json(), indent=1, ensure_ascii=False) + "\n")
    return {"like": 0, "cannot tell": 2}.get(report.verdict, 1)


def server(client: Client) -> str:
    kind = " ".join(filter(None, (client.dialect.kind, client.version)))
    return f"{client.wire.engine.name}: {kind}, model {client.shown_model or 'not named'}"


def table(report: CanaryReport) -> Table:
    return Table(
        ["draws against the model", "tokens", "chi-square", "degrees", f"p (level {LEVEL:g})"],
        [
            [
                check.name,
                f"{check.tokens:,}",
                f"{check.statistic:.1f}",
                str(check.degrees),
                f"{check.p:.2g}",
            ]
            for check in report.checks
        ],
    )


def sentences(report: CanaryReport) -> list[str]:
    words = [
        f"Control: {rule.name}, off by a total variation of {rule.variation:.2g}: found in "
        f"{rule.caught} of {rule.times}."
        for rule in report.controls
    ]
    for prefix, parts in report.greedy.items():
        words.append(f"Greedy after {quoted(prefix)}: {parts.says}")
    if report.verdict == "fault" and report.dtype == "auto":
        words.append(
            "If the server computes in another number type than the model here, name it with "
            "--served-in; coarser rounding explains more."
        )
    return [*words, "", VERDICTS[report.verdict].format(draws=report.draws)]
