"""`python -m workbench batch`: a set of prompts, decoded at several batch sizes and in several schemes."""

import argparse
from typing import Any

from workbench.studies import prompts
from workbench.studies.batch import DEFAULTS, SIZES, Batch, bounds
from workbench.studies.schemes import SCHEMES
from workbench.studies.text import allowed, parse
from workbench.terminal import flags, study

START = {"decoders": ["lookup", "speculative"], "temperature": 0.0, **DEFAULTS}
DESCRIPTION = (
    "Decode a set of prompts in batches, and compare each padding scheme with greedy decoding at the same size."
)
EXAMPLES = """examples:
  python -m workbench batch --prompts refrains --decoders lookup --sizes 1 4 8
  python -m workbench batch --prompts my.jsonl --count 100 --decoders speculative mtad --schemes unpadded dynamic --json out.json
  python -m workbench batch --sizes 8 --schemes dynamic --cache-mb 2 --prefill-chunk 32
"""


def register(commands: Any) -> None:
    """Add the command to those of `python -m workbench`."""
    schemes = flags.listed("schemes", {name: scheme.help for name, scheme in SCHEMES.items()})
    help = "decode a set of prompts in batches"
    command = flags.command(commands, "batch", help, DESCRIPTION + schemes, EXAMPLES)
    command.set_defaults(command=run)
    command.add_argument(
        "--prompts", default="refrains", metavar="SET",
        help=f"{' or '.join(prompts.BUILT_IN)}; or a file with one prompt per line, a .jsonl file, or a folder of text files (default: refrains)",
    )  # fmt: skip
    command.add_argument("--count", type=int, metavar="N", help="the first N prompts of the set (default: all)")
    command.add_argument(
        "--sizes", type=int, nargs="+", metavar="N", default=SIZES, help=f"batch sizes (default: {' '.join(map(str, SIZES))})"
    )  # fmt: skip
    command.add_argument("--schemes", "--ways", nargs="+", metavar="SCHEME", default=list(SCHEMES), help="default: all")
    command.add_argument(
        "--end", action="store_true", help="stop each text at its end; by default all have the same length"
    )
    for field, metavar in zip(bounds(), ("MB", "TOKENS"), strict=True):
        flag, help = f"--{field.name.replace('_', '-')}", f"{field.metadata['help']} ({allowed(field)})"
        command.add_argument(flag, metavar=metavar, help=help)
    flags.add(command, START)


def run(args: argparse.Namespace) -> int:
    bound = {field.name: parse(field, text) for field in bounds() if (text := getattr(args, field.name)) is not None}
    settings, chosen = flags.settings(args, START), prompts.find(args.prompts)
    if args.count is not None:
        chosen = chosen.first(args.count)
    return study.run(Batch(chosen, settings, tuple(args.sizes), tuple(args.schemes), not args.end, **bound), args)
