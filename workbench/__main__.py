"""The workbench without a browser: `python -m workbench compare "Once upon a time"`, `python -m workbench runs`."""

import argparse
import dataclasses
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers.utils import logging as transformers_logging

from decoders import InputError, catalog
from decoders.settings import nearest
from workbench import export, terminal
from workbench.fields import parse
from workbench.numbers import side_by_side
from workbench.pairs import load
from workbench.presets import PAIRS, SETTINGS, PairChoice
from workbench.runs import Run, RunStore
from workbench.session import Ended, compare
from workbench.settings import Settings, shared

EXAMPLES = """examples:
  python -m workbench compare "Once upon a time"
  python -m workbench compare "Once upon a time" --decoders greedy mtad --temperature 0 --json out.json
  python -m workbench compare "Once upon a time" --decoders dsbd --set dsbd.draft_beams=6 --repeats 5 --csv out.csv
  python -m workbench compare "The capital of France is" --models "SmolLM2-1.7B + SmolLM2-135M"
  python -m workbench compare - < prompt.txt
"""


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        self.exit(2, f"{message}; see {self.prog} --help.\n")


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, 1 where a decoder failed, 2 for input that cannot be used, 130 where it was stopped."""
    args = parser().parse_args(arguments)
    try:
        return args.command(args)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    top = Parser(prog="python -m workbench", description="Run decoders side by side, and look after past runs.")
    commands = top.add_subparsers(required=True, metavar="command", title="commands")
    decoder_list = "\n".join(f"  {name:14} {method.summary}" for name, method in catalog.items())
    one = commands.add_parser(
        "compare",
        help="decode one prompt with several decoders",
        description=f"Decode one prompt with several decoders, one after another so that each is timed alone.\n\ndecoders:\n{decoder_list}",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    one.set_defaults(command=compare_command)
    one.add_argument("prompt", help="the text to continue; - reads it from standard input")
    one.add_argument("--decoders", nargs="+", metavar="NAME", help="default: greedy beam_search speculative mtad dsbd")
    one.add_argument("--preset", metavar="NAME", help=f"settings to start from: {', '.join(map(repr, SETTINGS))}")
    for field in shared():
        flag, help = f"--{field.name.replace('_', '-')}", f"{field.metadata['help']} (default {field.default})"
        if isinstance(field.default, bool):
            one.add_argument(flag, action="store_true", default=None, help=help)
        else:
            one.add_argument(flag, metavar=field.name.split("_")[-1].upper(), help=help)
    one.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="DECODER.SETTING=VALUE",
        dest="own",
        help="a setting of one decoder",
    )
    one.add_argument(
        "--models", nargs="+", metavar="MODEL",
        help=f"target and draft: hub ids or folders, a folder with both, or one of {', '.join(map(repr, PAIRS))}",
    )  # fmt: skip
    one.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, ... (default: CUDA where there is one)")
    one.add_argument(
        "--dtype", default="auto", help="float32, bfloat16, float16 (default: bfloat16 on CUDA, else float32)"
    )
    for kind in export.WRITERS:
        one.add_argument(f"--{kind}", metavar="FILE", type=Path, help=f"also write the run as {kind.upper()}")
    one.add_argument("--no-save", action="store_true", help="do not add the run to the past ones")

    runs = commands.add_parser("runs", help="list, show, compare, export, import or delete past runs", description="Past runs; listed where no action is given.")  # fmt: skip
    runs.set_defaults(command=list_command)
    actions = runs.add_subparsers(metavar="action", title="actions")
    for name, command, help, operands in (
        ("list", list_command, "the latest runs", ()),
        ("show", show_command, "the texts and figures of one run", ("id",)),
        ("compare", pair_command, "the figures of two runs side by side", ("a", "b")),
        (
            "export",
            export_command,
            f"write a run to a file, by its ending: {', '.join(export.WRITERS)}",
            ("id", "file"),
        ),
        ("import", import_command, "add a run from a JSON export", ("file",)),
        ("delete", delete_command, "forget a run", ("id",)),
    ):
        action = actions.add_parser(name, help=help, description=help.capitalize() + ".")
        action.set_defaults(command=command)
        for operand in operands:
            action.add_argument(operand)
    return top


def compare_command(args: argparse.Namespace) -> int:
    settings, console = chosen_settings(args), Console(highlight=False)
    files = {kind: path for kind in export.WRITERS if (path := getattr(args, kind))}
    for path in files.values():
        if not path.absolute().parent.is_dir():
            raise InputError(f"There is no folder {path.absolute().parent} to write {path.name} into.")
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    store = None if args.no_save else RunStore()
    with Console(stderr=True).status("Loading the models"):
        transformers_logging.disable_progress_bar()
        pair = load(chosen_pair(args))
    with interruptible() as stop, closing(compare(pair, prompt, settings, cancel=stop)) as events:
        for event in terminal.follow(events, Console(stderr=True)):
            if isinstance(event, Ended):
                run = event.run
            elif event.result.repeat == 0:
                console.print(terminal.result(event.result))
    console.print("\n", terminal.legend(run.results), "\n", terminal.figures(run.results), sep="")
    if store is not None and run.results:
        store.save(run)
        console.print(f"\nkept as run {run.id}")
    for kind, path in files.items():
        write(path, export.WRITERS[kind](run))
    return 130 if run.cancelled else int(any(r.error for r in run.results))


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that the first interrupt sets, so that what is finished is kept; the second one raises as usual."""
    stop = threading.Event()

    def on_interrupt(*_: Any) -> None:
        signal.signal(signal.SIGINT, usual)
        stop.set()

    usual = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, usual)


def chosen_settings(args: argparse.Namespace) -> Settings:
    """The settings that the flags say, on top of the preset's."""
    if args.preset is not None and args.preset not in SETTINGS:
        raise InputError(f"There is no preset {args.preset!r}: {nearest(args.preset, SETTINGS)}")
    data: dict[str, Any] = (SETTINGS[args.preset] if args.preset else next(iter(SETTINGS.values()))).to_json()
    if not args.preset:
        data = {"decoders": data["decoders"]}
    data["decoders"] = args.decoders or data["decoders"]
    for field in shared():
        if (text := getattr(args, field.name)) is not None:
            data[field.name] = parse(field, text)
    for item in args.own:
        name, equals, text = item.partition("=")
        decoder, dot, key = name.partition(".")
        if not (equals and dot):
            raise InputError(f"--set takes DECODER.SETTING=VALUE, as in mtad.beams=8, not {item!r}.")
        fields = {f.name: f for f in dataclasses.fields(catalog[decoder])}
        if key not in fields:
            raise InputError(f"{decoder} has no setting {key!r}: {nearest(key, fields)}")
        data.setdefault(decoder, {})[key] = parse(fields[key], text)
    return Settings.from_json(data)


def chosen_pair(args: argparse.Namespace) -> PairChoice:
    names = args.models or []
    if len(names) > 2:
        raise InputError(f"--models takes a target and a draft, not {len(names)} names; put a preset's name in quotes.")
    if len(names) == 1 and names[0] in PAIRS:
        return PAIRS[names[0]].choice(args.device, args.dtype)
    return PairChoice(*[*names, None, None][:2], args.device, args.dtype)


def list_command(args: argparse.Namespace) -> int:
    runs = RunStore().list()
    Console(highlight=False).print(terminal.summaries(runs) if runs else "There are no runs yet.")
    return 0


def show_command(args: argparse.Namespace) -> int:
    run = RunStore().get(args.id)
    Console(highlight=False).print(terminal.run(run), "\n", terminal.figures(run.results), sep="")
    return 0


def pair_command(args: argparse.Namespace) -> int:
    a, b = (RunStore().get(id) for id in (args.a, args.b))
    Console(highlight=False).print(terminal.grid(*side_by_side(a.results, b.results)))
    return 0


def export_command(args: argparse.Namespace) -> int:
    path = Path(args.file)
    if path.suffix[1:] not in export.WRITERS:
        raise InputError(
            f"The file's name must end in {', '.join('.' + kind for kind in export.WRITERS)}, not {path.name!r}."
        )
    write(path, export.WRITERS[path.suffix[1:]](RunStore().get(args.id)))
    return 0


def import_command(args: argparse.Namespace) -> int:
    try:
        text = Path(args.file).read_bytes()
    except OSError as error:
        raise InputError(f"{args.file} cannot be read: {error.strerror}.") from None
    run = Run.from_json(text)
    RunStore().save(run)
    print(f"kept as run {run.id}")
    return 0


def delete_command(args: argparse.Namespace) -> int:
    RunStore().delete(args.id)
    return 0


def write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from None


if __name__ == "__main__":
    sys.exit(main())
