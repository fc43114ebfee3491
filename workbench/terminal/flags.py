"""The flags that commands share: decoders, engines, settings, models, files."""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from decoders import InputError
from decoders.errors import quoted, refuse
from decoders.settings import nearest
from workbench.engines import addresses
from workbench.engines.addresses import LISTED, Engine
from workbench.models.presets import PAIRS, PairChoice, first, tuned
from workbench.runs.record import Run
from workbench.show.view import WRITERS
from workbench.studies.prompts import Chat, Words, decoded, typed
from workbench.studies.settings import (
    Settings,
    allowed,
    parse,
    settings_of,
    shared,
    written,
)
from workbench.studies.study import Study

GIVEN = "given"  # an engine of a URL; runs hold names and no addresses


def add_engines(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--engines", nargs="+", metavar="ENGINE", default=[],
        help=f"servers of other engines to compare: URLs, or names from {LISTED}",
    )  # fmt: skip


def engines(args: argparse.Namespace) -> dict[str, Engine]:
    """The engines of the flag, by name; those of URLs are called given-1, given-2, …

    Raises:
        InputError: for a name or a URL that cannot be used
    """
    chosen: dict[str, Engine] = {}
    for number, word in enumerate(getattr(args, "engines", ()), 1):
        engine = addresses.named(word)
        if "://" in word:
            engine = dataclasses.replace(engine, name=f"{GIVEN}-{number}")
        chosen[engine.name] = engine
    return chosen


def every_engine(args: argparse.Namespace) -> Callable[[], dict[str, Engine]]:
    return lambda: {**addresses.engines(), **engines(args)}


def command(
    commands: Any, name: str, help: str, description: str, examples: str
) -> argparse.ArgumentParser:
    """A new command of `python -m workbench`.

    Args:
        commands: the commands, as `add_subparsers` gives them
        help: one line for the list of commands
        description: the text of its help; line breaks are kept
        examples: the end of its help; line breaks are kept
    """
    return commands.add_parser(
        name,
        help=help,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def listed(title: str, entries: Mapping[str, str]) -> str:
    width = max(map(len, entries)) + 2
    return "\n".join(
        ["", "", f"{title}:", *(f"  {name:{width}}{help}" for name, help in entries.items())]
    )


def numbers(args: argparse.Namespace, names: Iterable[str]) -> dict[str, int]:
    fields = {name: name.replace("-", "_") for name in names}
    texts = {name: getattr(args, field) for name, field in fields.items()}
    refuse(
        *(
            (
                not (text.isascii() and text.isdecimal() and len(text) < 20),
                f"--{name} takes a whole number, not {quoted(text)}.",
            )
            for name, text in texts.items()
        )
    )
    return {field: int(texts[name]) for name, field in fields.items()}


def add_prompt(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "prompt",
        help="the text to continue, or a list of messages with role and content as JSON; - reads "
        "it from standard input",
    )


def prompt(args: argparse.Namespace) -> Words:
    text = args.prompt
    if text == "-":
        text = decoded(sys.stdin.buffer.read(), "Standard input")
    words = typed(text)
    return Chat.of(words) if isinstance(words, list) else words


def add(command: argparse.ArgumentParser, start: Mapping[str, Any], study: type[Study]) -> None:
    """Add the flags that `settings`, `own`, `pair` and `files` read.

    Args:
        start: the settings that it begins with, as in `Settings.to_json`
        study: the kind of study that it runs
    """
    for field in (*study.own(), *shared()):
        flag = f"--{field.name.replace('_', '-')}"
        usual = written(field, start.get(field.name, field.default)) or "none"
        range = "; ".join(filter(None, [allowed(field), f"default {usual}"]))
        help = f"{field.metadata['help']} ({range})"
        if isinstance(field.default, bool):
            command.add_argument(flag, action=argparse.BooleanOptionalAction, help=help)
        else:
            command.add_argument(flag, metavar=field.name.split("_")[-1].upper(), help=help)
    command.add_argument(
        "--decoders", nargs="+", metavar="NAME", help=f"default: {' '.join(start['decoders'])}"
    )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="DECODER.SETTING=VALUE",
        dest="own",
        help="a setting of one decoder",
    )
    add_models(command)
    for kind in WRITERS:
        command.add_argument(
            f"--{kind}", metavar="FILE", type=Path, help=f"also write the run as {kind.upper()}"
        )
    command.add_argument("--no-save", action="store_true", help="do not add the run to past runs")


OPENING = "SmolLM2 where its weights are, else the embedded pair"


def add_models(command: argparse.ArgumentParser, usual: str = OPENING) -> None:
    command.add_argument(
        "--models",
        nargs="+",
        metavar="MODEL",
        help="target and draft: hub ids, folders or GGUF files, a folder with both, or one of "
        f"{', '.join(map(repr, PAIRS))} (default: {usual})",
    )
    command.add_argument(
        "--device", default="auto", help="cpu, cuda, cuda:1, ... (default: CUDA if there is one)"
    )
    command.add_argument(
        "--dtype",
        default="auto",
        help="float32, bfloat16, float16 (default: bfloat16 on CUDA, else float32)",
    )
    command.add_argument(
        "--quantization",
        choices=("int8", "int4"),
        help="quantise the weights while loading (int4 needs CUDA)",
    )


def settings(args: argparse.Namespace, start: Mapping[str, Any]) -> Settings:
    """The settings that the flags name, over those of the command and the pair.

    Args:
        start: the settings that the command begins with, besides those kept with the pair

    Raises:
        InputError: for an unknown decoder or setting, and for a value that cannot be used
    """
    data: dict[str, Any] = {**tuned(pair(args)), **start}
    data["decoders"] = args.decoders or data["decoders"]
    for field in shared():
        if (text := getattr(args, field.name)) is not None:
            data[field.name] = parse(field, text)
    for item in args.own:
        name, equals, text = item.partition("=")
        decoder, dot, key = name.partition(".")
        if not (equals and dot):
            raise InputError(
                f"--set takes DECODER.SETTING=VALUE, as in mtad.beams=8, not {quoted(item)}."
            )
        fields = {f.name: f for f in settings_of(decoder)}
        if key not in fields:
            raise InputError(f"{decoder} has no setting {quoted(key)}: {nearest(key, fields)}")
        data[decoder] = {**data.get(decoder, {}), key: parse(fields[key], text)}
    return Settings.from_json(data)


def own(args: argparse.Namespace, study: type[Study]) -> dict[str, Any]:
    return {
        field.name: parse(field, text)
        for field in study.own()
        if (text := getattr(args, field.name)) is not None
    }


def pair(args: argparse.Namespace, usual: PairChoice | None = None) -> PairChoice:
    """The pair that the flags name.

    Args:
        usual: the pair if they name no models; by default the one that the page begins with

    Raises:
        InputError: for more than two models
    """
    names = args.models or []
    if len(names) > 2:
        raise InputError(
            f"--models takes a target and a draft, not {len(names)} names; put a preset's name in "
            "quotes."
        )
    if not names:
        return dataclasses.replace(
            first() if usual is None else usual, device=args.device, dtype=args.dtype,
            quantization=args.quantization,
        )  # fmt: skip
    if len(names) == 1 and names[0] in PAIRS:
        return PAIRS[names[0]].choice(args.device, args.dtype, args.quantization)
    target, draft = [*names, None][:2]
    return PairChoice(target, draft, args.device, args.dtype, args.quantization)


def files(args: argparse.Namespace) -> dict[Path, Callable[[Run], str]]:
    """The files to write, each with the function that writes a run as text.

    Raises:
        InputError: before any work, if one of them could not be written after it
    """
    writers = {path: writer for kind, writer in WRITERS.items() if (path := getattr(args, kind))}
    writable(writers)
    return writers


def writable(paths: Iterable[Path]) -> None:
    """Raise InputError, before any work, if one of the files could not be written after it."""
    for path in paths:
        folder = path.absolute().parent
        refuse(
            (not folder.is_dir(), f"There is no folder {folder} to write {path.name} into."),
            (path.is_dir(), f"{path} is a folder; give the name of a file."),
        )


def write(path: Path, text: str) -> None:
    data = text.encode(errors="backslashreplace")  # half a character of an older run
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from None
