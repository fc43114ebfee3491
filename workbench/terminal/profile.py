"""`python -m workbench profile`: acceptance by draft length, and what it would gain on a server."""

import argparse
import dataclasses
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from decoders.errors import InputError, allowed, quoted, refuse
from workbench.engines.addresses import FILE, LISTED, named
from workbench.engines.probe import connect
from workbench.experiments.journal import Journal
from workbench.experiments.report import report
from workbench.profiles import costs, files, inferencex, vllm
from workbench.profiles.costs import LARGEST, Steps
from workbench.profiles.gain import gains, needed
from workbench.profiles.gather import ALL, of_report, of_run
from workbench.profiles.profile import Curve, Profile, listed
from workbench.profiles.report import sentences, table
from workbench.runs.store import RunStore
from workbench.studies.text import counted
from workbench.terminal import flags, show, study

SOURCE = """a profile, a run's JSON, a `--speculative-config` of vLLM, a golden curve of InferenceX
(YAML); or the id of a kept run or of an experiment"""
EXPORT = f"""Write the acceptance of methods by draft length and category.

SOURCE is {SOURCE}."""
GAIN = f"""Say what methods would gain on a server: the tokens that a verification writes, over its
cost in plain steps of that server. Drafting is not counted unless you name its cost.

PROFILE is {SOURCE}.
The server is named (a URL, or a name from {LISTED} or {FILE}) and asked
at 1, 2, 4, … requests at once, without drafts; or its costs are in a file that
--save has written; or it is described by figures."""
EXPORTS = """examples:
  python -m workbench profile export run.json -o profile.json
  python -m workbench profile export ID --as vllm --draft-length 4
  python -m workbench profile export qwen3.5_mtp.yaml --category "coding, thinking_on" --as vllm
"""
GAINS = """examples:
  python -m workbench profile gain profile.json --server http://127.0.0.1:8000 --save costs.json
  python -m workbench profile gain profile.json --costs costs.json --drafting 0.1
  python -m workbench profile gain qwen3.5_mtp.yaml --bandwidth 3350 --tflops 989 --parameters 32
"""
FORMATS = ("profile", "vllm", "inferencex")
FIGURES = {
    "bandwidth": "memory bandwidth of the device, GB/s",
    "tflops": "its dense 16-bit TFLOP/s",
    "parameters": "parameters of the target, in thousands of millions",
}


def register(commands: Any) -> None:
    """Add the command and its actions to those of `python -m workbench`."""
    command = commands.add_parser(
        "profile",
        help="export acceptance by draft length, and say what it gains on a server",
        description="Profiles: acceptance by draft length and category.",
    )
    command.set_defaults(command=lambda _: command.print_help())
    actions = command.add_subparsers(metavar="action", title="actions")
    _register_export(actions)
    _register_gain(actions)


def _register_export(actions: Any) -> None:
    export = flags.command(actions, "export", "write a profile", EXPORT, EXPORTS)
    export.set_defaults(command=export_profile)
    export.add_argument("source", metavar="SOURCE")
    export.add_argument("-o", "--out", metavar="FILE", type=Path, help="default: print it")
    export.add_argument("--as", choices=FORMATS, default=FORMATS[0], dest="kind", help="its format")
    export.add_argument("--draft-length", metavar="N", help="for vLLM: draft tokens of a round")
    _add_curve(export)


def _register_gain(actions: Any) -> None:
    gain = flags.command(actions, "gain", "what methods would gain on a server", GAIN, GAINS)
    gain.set_defaults(command=gain_on_a_server)
    add = gain.add_argument
    add("profile", metavar="PROFILE")
    add("--server", metavar="ENGINE", help="name or URL of a server that does not draft")
    add("--key", metavar="VARIABLE", help="environment variable with the key of a URL")
    add("--kind", metavar="KIND", help="vllm, sglang, llama.cpp, … (default: found out)")
    add("--costs", metavar="FILE", type=Path, help="costs that --save has written")
    for name, help in FIGURES.items():
        add(f"--{name}", metavar="X", help=help)
    add("--loads", nargs="+", default=["1", "4", "16"], metavar="N",
        help="requests at once (default: 1 4 16)")  # fmt: skip
    add("--drafting", metavar="X", help="cost of a draft token in plain steps, as 0.1")
    add("--save", metavar="FILE", type=Path, help="also write the server's costs")
    _add_curve(gain)


def _add_curve(command: argparse.ArgumentParser) -> None:
    command.add_argument("--method", metavar="NAME", help="only this method of the profile")
    command.add_argument("--category", metavar="NAME", help="only texts of this category")


def read(name: str) -> Profile:
    """The profile that an operand names: a file, a kept run or an experiment.

    Raises:
        InputError: if there is none
    """
    path = Path(name)
    if path.suffix or path.exists():
        return files.read(path)
    try:
        run = RunStore().get(name)
    except InputError:
        journal = Journal()
        if name not in {past.id for past in journal.experiments()}:
            raise InputError(
                f"There is no file, run or experiment {quoted(name)}; `runs` and `experiment "
                "--list` show the ids."
            ) from None
        return of_report(report(journal, name))
    return of_run(run)


def export_profile(args: argparse.Namespace) -> int:
    paths = [args.out] if args.out else []
    flags.writable(paths)
    text = exported(read(args.source), args)
    for path in paths:
        flags.write(path, text + "\n")
        print(f"written: {path}")
    if not paths:
        print(show.plain(text))
    return 0


def exported(found: Profile, args: argparse.Namespace) -> str:
    """The profile in the format that the flags name."""
    if args.kind == "profile":
        kept = tuple(chosen(found, args)) if args.method or args.category else found.curves
        return dataclasses.replace(found, curves=kept).dumps()
    curve = found.curve(args.method, args.category or _usual(found))
    if args.kind == "inferencex":
        return inferencex.write(found, curve).rstrip("\n")
    if args.draft_length is None and len(curve.points) > 1:
        lengths = ", ".join(str(point.draft_length) for point in curve.points)
        raise InputError(f"vLLM takes one draft length; name it with --draft-length: {lengths}.")
    length = curve.points[0].draft_length
    if args.draft_length is not None:
        length = int(number("--draft-length", args.draft_length, 1, 1024))
    return vllm.write(curve.at(length))


def _usual(found: Profile) -> str | None:
    """The category of all texts, if there is one."""
    return ALL if any(curve.category == ALL for curve in found.curves) else None


def chosen(found: Profile, args: argparse.Namespace) -> list[Curve]:
    """The curves that the flags name; of several categories, that of all texts."""
    category = args.category or _usual(found)
    curves = [
        curve
        for curve in found.curves
        if args.method in (None, curve.method) and category in (None, curve.category)
    ]
    refuse((not curves, f"No curve fits; the profile has {listed(found.curves)}."))
    return curves


def number(flag: str, text: str, low: float, high: float) -> float:
    """A number that a flag takes; raises InputError for any other text."""
    whole = isinstance(low, int)
    try:
        value: Any = int(text) if whole else float(text)
    except ValueError:
        value = text
    return allowed(flag, value, low, high)


def gain_on_a_server(args: argparse.Namespace) -> int:
    paths = [args.save] if args.save else []
    flags.writable(paths)
    curves = chosen(read(args.profile), args)
    loads = sorted({int(number("--loads", each, 1, LARGEST)) for each in args.loads})
    drafting = None if args.drafting is None else number("--drafting", args.drafting, 0.0, 100.0)
    steps, stopped = of_server(args, needed(curves, loads))
    for path in [] if stopped else paths:  # a part would pass for all of it
        flags.write(path, steps.dumps() + "\n")
    found = {curve: list(gains(curve, steps, loads, drafting)) for curve in curves}
    if any(found.values()):
        console = Console(highlight=False)
        console.print(show.grid(table(found, drafting)), "", sep="\n")
        for words in sentences(found, steps, loads, drafting):
            console.print(Text(show.plain(words)), soft_wrap=True)
    elif not stopped:
        raise InputError(
            f"The costs are known up to {counted(steps.largest, 'request')} at once, which is too "
            "few for a verification; name smaller loads, or a profile of shorter drafts."
        )
    if stopped:
        most = counted(steps.largest, "request")
        print(f"Stopped after {most} at once; no costs were saved.", file=sys.stderr)
    return 130 if stopped else 0


def of_server(args: argparse.Namespace, most: int) -> tuple[Steps, bool]:
    """The costs that the flags name, measured if they name a server.

    Args:
        args: the flags
        most: the largest number of requests at once that has to be known

    Returns:
        the costs, and whether an interrupt ended their measurement
    """
    figures = {name: getattr(args, name) for name in FIGURES if getattr(args, name) is not None}
    if sum(map(bool, (args.server, args.costs, figures))) != 1:
        raise InputError("Name the server in one way: --server, --costs, or its figures.")
    if args.costs:
        return files.read_costs(args.costs), False
    if args.server:
        said = {name: value for name in ("key", "kind") if (value := getattr(args, name))}
        client = connect(dataclasses.replace(named(args.server), **said))
        progress = Console(stderr=True)
        with closing(client.wire), study.interruptible() as stop, progress.status("") as status:
            try:
                steps = costs.measured(
                    client, most, lambda n: status.update(f"{n} at once"), stop.is_set
                )
            except InputError:
                if stop.is_set():
                    raise KeyboardInterrupt from None
                raise
            return steps, stop.is_set()
    if missing := [f"--{name}" for name in FIGURES if name not in figures]:
        raise InputError(f"A device needs all its figures; add {' and '.join(missing)}.")
    bandwidth, tflops, billions = (
        number(f"--{name}", figures[name], 1e-3, 1e6) for name in FIGURES
    )
    return costs.of_figures(bandwidth, tflops, billions, most), False
