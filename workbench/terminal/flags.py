"""The flags that commands share: decoders, settings, models, files."""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from decoders import InputError, catalog
from decoders.settings import nearest
from workbench.models.presets import PAIRS, PairChoice
from workbench.runs.record import Run
from workbench.show.files import WRITERS
from workbench.studies.presets import SETTINGS
from workbench.studies.settings import Settings, shared
from workbench.studies.text import parse

Start = Mapping[str, Any]  # what a command begins with, as `Settings.to_json` has it


def command(commands: Any, name: str, help: str, description: str, examples: str) -> argparse.ArgumentParser:
    """A new command of `python -m workbench`; its help keeps the line breaks of description and examples."""
    return commands.add_parser(
        name, help=help, description=description, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def listed(title: str, entries: Mapping[str, str]) -> str:
    """Names and what they mean, as a paragraph of a description."""
    width = max(map(len, entries)) + 2
    return "\n".join(["", "", f"{title}:", *(f"  {name:{width}}{help}" for name, help in entries.items())])


def add_prompt(command: argparse.ArgumentParser) -> None:
    """The operand that `prompt` reads."""
    command.add_argument("prompt", help="the text to continue; - reads it from standard input")


def prompt(args: argparse.Namespace) -> str:
    """Raises InputError if standard input is not text."""
    if args.prompt != "-":
        return args.prompt
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise InputError("Standard input is not text in UTF-8; save the prompt as plain text in UTF-8.") from None


def add(command: argparse.ArgumentParser, start: Start) -> None:
    """Flags that `settings`, `pair` and `files` read."""
    command.add_argument("--decoders", nargs="+", metavar="NAME", help=f"default: {' '.join(start['decoders'])}")
    command.add_argument("--preset", metavar="NAME", help=f"settings to start from: {', '.join(map(repr, SETTINGS))}")
    for field in shared():
        flag, help = f"--{field.name.replace('_', '-')}", field.metadata["help"]
        help += f" (default {start.get(field.name, field.default)})"
        if isinstance(field.default, bool):
            command.add_argument(flag, action="store_true", default=None, help=help)
        else:
            command.add_argument(flag, metavar=field.name.split("_")[-1].upper(), help=help)
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="DECODER.SETTING=VALUE",
        dest="own",
        help="a setting of one decoder",
    )
    add_models(command)
    add_files(command)


def add_files(command: argparse.ArgumentParser) -> None:
    """Flags that `files` reads, and whether the run is kept."""
    for kind in WRITERS:
        command.add_argument(f"--{kind}", metavar="FILE", type=Path, help=f"also write the run as {kind.upper()}")
    command.add_argument("--no-save", action="store_true", help="do not add the run to the past ones")


def add_models(command: argparse.ArgumentParser) -> None:
    """Flags that `pair` reads."""
    command.add_argument(
        "--models", nargs="+", metavar="MODEL",
        help=f"target and draft: hub ids or folders, a folder with both, or one of {', '.join(map(repr, PAIRS))}",
    )  # fmt: skip
    command.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, ... (default: CUDA if there is one)")
    command.add_argument(
        "--dtype", default="auto", help="float32, bfloat16, float16 (default: bfloat16 on CUDA, else float32)"
    )
    command.add_argument(
        "--quantization", choices=("int8", "int4"), help="quantise the weights while loading (int4: on CUDA)"
    )


def settings(args: argparse.Namespace, start: Start) -> Settings:
    """The settings that the flags name; the others are the preset's, or what the command begins with."""
    if args.preset is not None and args.preset not in SETTINGS:
        raise InputError(f"There is no preset {args.preset!r}: {nearest(args.preset, SETTINGS)}")
    data = dict(start)
    data |= SETTINGS[args.preset] if args.preset else {}
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


def pair(args: argparse.Namespace) -> PairChoice:
    names = args.models or []
    if len(names) > 2:
        raise InputError(f"--models takes a target and a draft, not {len(names)} names; put a preset's name in quotes.")
    if len(names) == 1 and names[0] in PAIRS:
        return PAIRS[names[0]].choice(args.device, args.dtype, args.quantization)
    target, draft = [*names, None, None][:2]
    return PairChoice(target, draft, args.device, args.dtype, args.quantization)


def files(args: argparse.Namespace) -> dict[Path, Callable[[Run], str]]:
    """The files to write and how. Raises InputError, before any work, if one could not be written after it."""
    found = {path: writer for kind, writer in WRITERS.items() if (path := getattr(args, kind))}
    for path in found:
        if not path.absolute().parent.is_dir():
            raise InputError(f"There is no folder {path.absolute().parent} to write {path.name} into.")
        if path.is_dir():
            raise InputError(f"{path} is a folder; give the name of a file.")
    return found


def write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from None
